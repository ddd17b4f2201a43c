package jobtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// AcquireDuringRemoval loses the answer to a request of d, which uses the proxy, and cuts d off, so
// that d can't remove what the request has left in the store. When the way is free, the same owner
// acquires the lock again, before d has removed that. It must keep the lock.
func AcquireDuringRemoval(t *testing.T, proxy *livetest.Proxy, d, other interface {
	driver.Driver
}) {
	const name = "removed"
	try := func(ctx context.Context, d driver.Driver, owner string, noWait bool) (driver.Lease, error) {
		return d.Acquire(ctx, driver.Request{Name: name, ID: owner, TTL: time.Minute, NoWait: noWait, Holder: driver.Holder{Label: "by " + owner}})
	}
	for _, d := range []driver.Driver{d, other} { // they connect, and create the row
		l, err := try(t.Context(), d, "first", false)
		if err == nil {
			err = l.Release(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lost := proxy.LoseAnswers(1, livetest.ThenHang, name, "by owner") // to the write, not to a read before it
	severed := make(chan func(), 1)
	go func() {
		<-lost
		severed <- proxy.Sever()
		cancel()
	}()
	if _, err := try(ctx, d, "owner", false); !errors.Is(err, context.Canceled) {
		t.Fatalf("Acquire that was given up = %v, want Canceled", err)
	}
	if st, err := other.Status(t.Context(), name); err != nil || len(st.Holders) != 1 {
		t.Fatalf("Status = %+v, %v, want one holder that is left of the request", st, err)
	}
	(<-severed)()
	l, err := try(t.Context(), d, "owner", false)
	if err != nil {
		t.Fatal(err)
	}
	// d repeats the removal for AnswerTimeout.
	for began := time.Now(); time.Since(began) < driver.AnswerTimeout+time.Second; time.Sleep(50 * time.Millisecond) {
		if _, err := try(t.Context(), other, "other", true); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("Acquire of another owner %v later = %v, want ErrHeld", time.Since(began), err)
		}
	}
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("Release = %v", err)
	}
}
