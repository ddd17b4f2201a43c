package jobtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// HandOverWindow measures for how long a lease that the store has ended is still handed over inside
// a process. Eight goroutines of one Locker hand a lock over among themselves, and another process
// breaks their lease, again and again. A stale grant is one that a goroutine gets under a broken
// lease after the answer to Break. The log has their number, and how long after the answer the last
// one under each lease came. open returns a new driver on the same store.
//
// These times depend on the machine. The test checks only that the next lease has greater tokens
// than all holds under the broken one.
func HandOverWindow(t *testing.T, open func(*testing.T) driver.Driver) {
	for _, held := range []time.Duration{0, time.Millisecond} {
		t.Run(fmt.Sprintf("Untold/%v", held), func(t *testing.T) {
			measureWindow(t, locker(t, untold{open(t)}), open(t), held)
		})
		t.Run(fmt.Sprintf("Told/%v", held), func(t *testing.T) {
			ours := open(t)
			if !ours.Info().TellsLoss {
				t.Skip("the store tells nobody")
			}
			measureWindow(t, locker(t, ours), open(t), held)
		})
	}
}

// An untold driver does not tell a holder of its loss, as if the message had got lost.
type untold struct{ driver.Driver }

func (u untold) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	req.OnLost = nil
	return u.Driver.Acquire(ctx, req)
}

// measureWindow breaks the lease of goroutines that hold a lock for a time each.
func measureWindow(t *testing.T, l *snib.Locker, operator driver.Inspector, held time.Duration) {
	const name, goroutines, breaks = "window", 8, 500
	var grants grantLog
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer running.Wait()
	defer cancel()
	for range goroutines {
		running.Go(func() {
			for ctx.Err() == nil {
				lock, err := l.Acquire(ctx, name)
				if err != nil {
					continue
				}
				grants.add(lock)
				if held > 0 {
					time.Sleep(held) // the time for which it is held
				}
				if err := lock.Release(); err != nil && !errors.Is(err, snib.ErrLost) {
					t.Errorf("Release = %v", err)
				}
			}
		})
	}
	var last, took []time.Duration
	stale, machine := 0, livetest.Lateness()
	for len(took) < breaks {
		time.Sleep(rand.N(20 * time.Millisecond)) // so that Break comes at any time after a confirmation
		st, err := operator.Status(ctx, name)
		if err != nil {
			t.Fatalf("Status = %v", err)
		}
		if len(st.Holders) == 0 {
			continue
		}
		h := st.Holders[0]
		grants.watch(h.ID, h.Token)
		sent := time.Now()
		err = operator.Break(ctx, name, h.ID)
		answered := time.Now()
		if errors.Is(err, driver.ErrLost) {
			continue // the lease was released in the meantime
		}
		if err != nil {
			t.Fatalf("Break = %v", err)
		}
		took = append(took, answered.Sub(sent))
		livetest.Await(t, "next lease", grants.checkNext)
		n, at, err := grants.since(answered)
		if err != nil {
			t.Error(err)
		}
		stale += n
		last = append(last, at.Sub(answered))
	}
	slices.Sort(last)
	slices.Sort(took)
	at := func(all []time.Duration, percent int) time.Duration {
		return all[(len(all)-1)*percent/100].Round(10 * time.Microsecond)
	}
	without, _ := slices.BinarySearch(last, 1)
	t.Logf("%d leases broken, each within %v (median); %d with stale grants, %d stale grants in all; "+
		"the last one under a lease came after %v (median), %v (90 %%), %v (99 %%), %v (most); timers were late by up to %v",
		breaks, at(took, 50), breaks-without, stale, at(last, 50), at(last, 90), at(last, 99), at(last, 100),
		machine().Round(time.Millisecond))
}

// A grantLog has the grants under the lease that is watched, and the tokens of later ones.
type grantLog struct {
	mu     sync.Mutex
	id     string // that of the lease
	first  uint64 // its first token
	last   uint64 // the last token of a grant under it
	next   uint64 // the least token of a grant under a later lease, or 0
	grants []time.Time
}

func (g *grantLog) add(lock *snib.Lock) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch token := lock.Token(); {
	case lock.ID() == g.id:
		g.last, g.grants = max(g.last, token), append(g.grants, now)
	case token > g.first && (g.next == 0 || token < g.next):
		g.next = token
	}
}

// watch begins to log the grants under a lease.
func (g *grantLog) watch(id string, first uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.id, g.first, g.last, g.next, g.grants = id, first, first, 0, g.grants[:0]
}

// checkNext returns an error unless there was a grant under a later lease.
func (g *grantLog) checkNext() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next == 0 {
		return errors.New("no grant under another lease")
	}
	return nil
}

// since returns how many grants under the watched lease came after a time, and when the last one
// came, or that time if there were none. It returns an error if a later lease has a token that is
// not greater.
func (g *grantLog) since(at time.Time) (n int, last time.Time, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next <= g.last {
		err = fmt.Errorf("token %d under a later lease than token %d", g.next, g.last)
	}
	last = at
	for _, grant := range g.grants {
		if grant.After(at) {
			n++
		}
		if grant.After(last) {
			last = grant
		}
	}
	return n, last, err
}
