package jobtest

// This file checks that goroutines of one process hand a lock over among themselves, and that
// others get it all the same.

import (
	"context"
	"sync"
	"testing"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// A Crowd is goroutines of one process that always want the same lock, beside others.
type Crowd struct {
	Many, Few driver.Driver         // of the process of the crowd, and of another one
	Visit     func(lock *snib.Lock) // is called under some holds; may be nil
	Stranger  func(name string)     // acquires and releases the lock with a foreign client; may be nil
}

// HandOver checks that tokens increase, that most hand-overs are within the process, and that
// nobody starves.
func (c Crowd) HandOver(t *testing.T) {
	t.Helper()
	const name, turns, strangers = "crowd", 40, 4
	var last uint64 // guarded by the lock, as are the others
	var id string
	visits, handedOver, inRow, most := 0, 0, 0, 0
	visit := func(lock *snib.Lock) {
		if lock.Token() <= last {
			t.Errorf("Token = %d after %d", lock.Token(), last)
		}
		if last = lock.Token(); lock.ID() == id {
			handedOver++
		}
		id = lock.ID()
	}
	few := locker(t, c.Few)
	c.beside(t, name, func(lock *snib.Lock) {
		visit(lock)
		// Not in each run: a run ends after 5 ms, and that long a visit may take.
		if visits++; visits%100 == 1 && c.Visit != nil {
			c.Visit(lock)
		}
		inRow++
		most = max(most, inRow)
	}, func() {
		for range turns {
			turn(t, few, name, func(lock *snib.Lock) {
				visit(lock)
				inRow = 0
			})
		}
		for range strangers {
			if c.Stranger != nil {
				c.Stranger(name)
			}
		}
	})
	t.Logf("%d hand-overs within a process; at most %d turns in a row beside another process", handedOver, most)
	if handedOver < 2*turns {
		t.Errorf("%d hand-overs within a process beside %d turns of another one, want many more", handedOver, turns)
	}
}

// turn acquires a lock, visits, and releases the lock.
func turn(t *testing.T, l *snib.Locker, name string, visit func(*snib.Lock)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
	defer cancel()
	lock, err := l.Acquire(ctx, name)
	if err != nil {
		t.Fatalf("Acquire beside the crowd = %v", err)
	}
	visit(lock)
	if err := lock.Release(); err != nil {
		t.Fatalf("Release beside the crowd = %v", err)
	}
}

// beside has the crowd take turns at a lock until others returns.
func (c Crowd) beside(t *testing.T, name string, visit func(*snib.Lock), others func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var crowd sync.WaitGroup
	defer crowd.Wait()
	defer stop()
	many := locker(t, c.Many)
	for range 8 {
		crowd.Go(func() {
			for {
				lock, err := many.Acquire(ctx, name)
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("Acquire in the crowd = %v", err)
					}
					return
				}
				visit(lock)
				if err := lock.Release(); err != nil {
					t.Errorf("Release in the crowd = %v", err)
				}
			}
		})
	}
	others()
}
