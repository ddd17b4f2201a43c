package serve

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/remotelock/wire"
)

// TestChecksAreShared checks that a costly check is made once for all who ask within
// checkInterval, that its failure is not kept, and that a client that gives up does not wait.
func TestChecksAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCheck[int]()
		calls, down := 0, errors.New("down")
		do := func(context.Context) (int, error) {
			time.Sleep(time.Second) // fake time
			if calls++; calls == 1 {
				return 0, down
			}
			return calls, nil
		}
		want := func(result int, wantErr error) {
			t.Helper()
			if got, err := c.get(t.Context(), do); got != result || !errors.Is(err, wantErr) {
				t.Errorf("get = %d, %v; want %d, %v", got, err, result, wantErr)
			}
		}
		want(0, down)
		for range 10 {
			go want(2, nil)
		}
		time.Sleep(time.Second / 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := c.get(ctx, do); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("get of a client that gives up = %v, want the error of its context", err)
		}
		synctest.Wait()
		time.Sleep(checkInterval / 2)
		want(2, nil)
		time.Sleep(checkInterval)
		want(3, nil)
	})
}

// TestDoctorIsForAllLocks checks that the administrator of a part of the store does not learn of
// the whole, whatever the Authorizer lets begin.
func TestDoctorIsForAllLocks(t *testing.T) {
	access := &testAccess{admin: true, prefix: "team/"}
	r := startReplica(t, new(memlock.Store), Options{
		Access: access, Doctor: func(context.Context) ([]wire.Finding, error) { return nil, nil },
	})
	r.check(r.send(t.Context(), http.MethodGet, wire.PathDoctor, "", ""), "doctor", http.StatusForbidden)
	access.prefix = ""
	r.get(wire.PathDoctor)
}
