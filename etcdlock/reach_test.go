package etcdlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// TestLoginLapses lets a login expire. The driver renews it, and no caller notices.
func TestLoginLapses(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, "--auth-token-ttl=1")
	server.RequireLogin()
	holds, waits := open(t, dial(t, server)), open(t, dial(t, server))
	l, told := acquire(t, holds, request("job", "holder")), time.NewTimer(4*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
	defer cancel()
	waiting := make(chan error, 1)
	go func() {
		next, err := waits.Acquire(ctx, request("job", "waiter"))
		if err == nil {
			err = next.Release(ctx)
		}
		waiting <- err
	}()
	<-told.C // until the logins have expired; no event reports that
	if err := holds.Renew(ctx, []driver.Lease{l})[0].Err; err != nil {
		t.Errorf("Renew = %v", err)
	}
	release(t, acquire(t, holds, request("other", "holder")))
	release(t, l)
	if err := <-waiting; err != nil {
		t.Errorf("Acquire of the waiter = %v", err)
	}
}
