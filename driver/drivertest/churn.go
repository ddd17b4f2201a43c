package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
)

func churnClauses() []clause {
	return []clause{
		{
			name: "Churn/Counter",
			why:  "under contention too there is one holder at a time, each with a greater token, and all get their turn",
			run: func(t *trial) {
				t.churn(func(*rand.Rand) job { return job{req: t.req(""), weight: 1, most: 1, writes: true} })
			},
		},
		{
			name: "Churn/Cancels",
			why:  "waits that are given up all the time, at any moment, neither let two in nor leave the lock to nobody",
			run: func(t *trial) {
				t.churn(func(rnd *rand.Rand) job {
					j := job{req: t.req(""), weight: 1, most: 1, writes: true}
					if rnd.IntN(3) > 0 {
						j.giveUpAfter = time.Duration(1 + rnd.Int64N(int64(t.wakeLimit())))
					}
					// This gives others time to give up.
					j.hold = time.Duration(rnd.Int64N(int64(t.wakeLimit() / 8)))
					return j
				})
			},
		},
		{
			name: "Churn/Shared",
			why:  "readers and writers that come and go all the time never meet, and all get their turn",
			gate: shared(),
			run: func(t *trial) {
				const most = 100
				t.churn(func(rnd *rand.Rand) job {
					if rnd.IntN(3) == 0 {
						return job{req: t.req(""), weight: most, most: most, writes: true}
					}
					return job{req: t.sharedReq(""), weight: 1, most: most, hold: time.Duration(rnd.Int64N(int64(t.wakeLimit() / 8)))}
				})
			},
		},
		{
			name: "Churn/Slots",
			why: "a semaphore whose holders come and go all the time is never overfull for one of them, though they ask " +
				"for different sizes, and all get their turn",
			gate: slots(),
			run: func(t *trial) {
				t.churn(func(rnd *rand.Rand) job {
					n := 2 + rnd.IntN(3)
					return job{req: t.slotReq("", n), weight: 1, most: int32(n), hold: time.Duration(rnd.Int64N(int64(t.wakeLimit() / 8)))}
				})
			},
		},
	}
}

// A job is one acquisition of a churn.
type job struct {
	req         driver.Request // without the id's suffix
	weight      int32          // how much of the lock it takes
	most        int32          // how much all that hold it at once may take
	writes      bool           // it holds the lock alone, so that it may write
	giveUpAfter time.Duration  // how long it waits; 0 means that it must be served
	hold        time.Duration
}

// A guardedCounter is what the lock guards. It is read and written in two steps, so that two
// writers at once lose an update. The numbers are atomic, because the race detector does not see
// the order that a store makes.
type guardedCounter struct {
	inside atomic.Int32 // the sum of the weights
	value  atomic.Int64
	writes atomic.Int64 // what value must be in the end
	token  atomic.Uint64

	mu            sync.Mutex
	failures      []string
	slowestGiveUp time.Duration // how long Acquire took after its context was done, at most
}

func (r *guardedCounter) use(j job, token uint64) {
	check := func(inside int32) {
		if inside > j.most {
			r.fail("there are more holders at once than the lock allows")
		}
	}
	defer func() { check(r.inside.Add(-j.weight) + j.weight) }() // somebody may have come since
	check(r.inside.Add(j.weight))
	if !j.writes {
		time.Sleep(j.hold)
		return
	}
	if last := r.token.Swap(token); token > 0 && token <= last {
		r.fail("token %d after %d", token, last)
	}
	n := r.value.Load()
	runtime.Gosched()
	time.Sleep(j.hold)
	r.value.Store(n + 1)
	r.writes.Add(1)
}

// noteGiveUp records how long Acquire took after its context was done.
func (r *guardedCounter) noteGiveUp(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slowestGiveUp = max(r.slowestGiveUp, took)
}

func (r *guardedCounter) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// churn lets goroutines of several drivers contend for the lock.
func (t *trial) churn(next func(rnd *rand.Rand) job) {
	t.Helper()
	drivers := []driver.Driver{t.open(), t.open(), t.open()}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	goroutines, jobs := 9, 5
	if t.h.Bubble {
		jobs = 12
	}
	var reg guardedCounter
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Add(1)
		t.running.Go(func() {
			defer wg.Done()
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			for n := range jobs {
				j := next(rnd)
				j.req.ID += fmt.Sprint(i, "-", n)
				t.runJob(drivers[i%len(drivers)], &reg, j)
			}
		})
	}
	wg.Wait()
	if len(reg.failures) > 0 {
		t.Errorf("%d things went wrong, such as: %s", len(reg.failures), reg.failures[0])
	}
	if got, want := reg.value.Load(), reg.writes.Load(); got != want {
		t.Errorf("%d updates are left of %d", got, want)
	}
	// An attempt that was repeated, because the machine was late, was given up as well.
	t.mustBeWithdrawn(max(reg.slowestGiveUp, t.lateness()), func() error { return t.checkFree(drivers[0]) })
}

// runJob does one acquisition, which may give up.
func (t *trial) runJob(d driver.Driver, reg *guardedCounter, j job) {
	ctx, cancel := context.WithCancelCause(t.ctx)
	defer cancel(nil)
	// The limit is less than the TTL: after that, an expiry would hide what went wrong.
	limit, why := 2*waitTimeout, errors.New("no turn in a long time")
	if j.giveUpAfter > 0 {
		limit, why = j.giveUpAfter, errGone
	}
	var givenUp time.Time
	stop := time.AfterFunc(limit, func() { givenUp = time.Now(); cancel(why) })
	defer stop.Stop()
	var l driver.Lease
	id, tries := j.req.ID, 0
	err := t.retryIfLate(func() (err error) {
		tries++
		j.req.ID = fmt.Sprint(id, "-", tries) // no two calls may have the same id
		l, err = d.Acquire(ctx, j.req)
		return err
	})
	switch {
	case err != nil && j.giveUpAfter > 0 && ctx.Err() != nil:
		reg.noteGiveUp(time.Since(givenUp))
		return
	case err != nil:
		reg.fail("Acquire = %v", err)
		return
	}
	reg.use(j, l.Grant().Token)
	if err := t.releaseAnswer(context.WithoutCancel(ctx), l); err != nil {
		reg.fail("Release = %v", err)
	}
}
