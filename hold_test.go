package snib_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
)

// Where a lease ends with its session, the lease of a lost hold is released when its TTL and the
// delay are over, although the session lives on and no renewal has failed.
func TestLostLeaseOfSession(t *testing.T) {
	const session, maxHold, delay = time.Minute, 5 * time.Second, 20 * time.Second
	tests := []struct {
		name    string
		opts    []snib.Option
		release bool
		closed  time.Duration
	}{
		{"NotReleased", nil, false, session},
		{"Released", nil, true, maxHold},
		{"DelayNotReleased", []snib.Option{snib.LockDelay(delay)}, false, session},
		{"DelayReleased", []snib.Option{snib.LockDelay(delay)}, true, session},
	}
	for _, test := range tests {
		bubble(t, test.name, func(t *testing.T) {
			store := new(memlock.Store)
			d := newSpy(store)
			endlessSession(d, session)
			ours, theirs := open(t, d, append(test.opts, snib.MaxHold(maxHold))...), open(t, store.Open())
			lock, began := acquire(t, ours, "a"), time.Now()
			<-lock.Lost()
			if test.release {
				wantErr(t, "Release of what was lost", lock.Release(), snib.ErrLost)
			}
			release(t, acquire(t, theirs, "a"))
			if got := time.Since(began); got != test.closed {
				t.Errorf("the lock was closed for %v, want %v", got, test.closed)
			}
			wantErr(t, "Release of what was lost", lock.Release(), snib.ErrLost)
		})
	}
}

// sessionLease is a lease with the TTL of a session.
type sessionLease struct {
	driver.Lease
	ttl time.Duration
}

func (l *sessionLease) Grant() driver.Grant {
	g := l.Lease.Grant()
	g.TTL = l.ttl
	return g
}

// The context ends before Lost is closed, so a goroutine woken by Lost finds the cause.
func TestContextEndsBeforeLost(t *testing.T) {
	tests := []struct {
		name string
		wait func(*snib.Lock) bool // reports the loss
	}{
		{"Waiting", func(l *snib.Lock) bool { return isClosed(l.Lost()) }},
		{"FirstLook", func(l *snib.Lock) bool { return l.Validity() == 0 && isClosed(l.Lost()) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			store := new(memlock.Store)
			l := open(t, store.Open(), snib.Reentrant())
			outer := acquire(t, l, "a")
			inner, err := l.Acquire(outer.Context(), "a")
			wantErr(t, "Acquire", err, nil)
			for _, lock := range []*snib.Lock{outer, inner} {
				for range 50_000 { // make the context's end slow
					_, cancel := context.WithCancel(lock.Context())
					defer cancel()
				}
			}
			broken := make(chan error, 1)
			// Break reports the loss before it returns.
			go func() { broken <- store.Open().Break(t.Context(), "a", outer.ID()) }()
			for !tt.wait(inner) {
				runtime.Gosched()
			}
			wantErr(t, "outer cause once Lost is closed", context.Cause(outer.Context()), snib.ErrLost)
			wantErr(t, "inner cause once Lost is closed", context.Cause(inner.Context()), snib.ErrLost)
			wantErr(t, "Break", <-broken, nil)
		})
	}
}

// Release and the context agree about how a hold ended, even if it is lost at the same moment.
func TestReleaseAndCauseAgree(t *testing.T) {
	for range 5 {
		l, err := snib.New(memlock.New())
		wantErr(t, "New", err, nil)
		slow, quick := acquire(t, l, "slow"), acquire(t, l, "quick")
		ctx := quick.Context()
		for range 50_000 { // its contexts take long to end, and end first
			_, cancel := context.WithCancel(slow.Context())
			defer cancel()
		}
		released := make(chan error)
		go func() {
			for quick.Validity() > 0 {
				runtime.Gosched()
			}
			released <- quick.Release()
		}()
		wantErr(t, "Close", l.Close(), nil)
		wantErr(t, "Release", <-released, snib.ErrLost)
		wantErr(t, "cause", context.Cause(ctx), snib.ErrLost)
	}
}
