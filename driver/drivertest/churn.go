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
				t.churn(1, func(*rand.Rand) job { return job{req: t.req(""), weight: 1, writes: true} })
			},
		},
		{
			name: "Churn/Cancels",
			why:  "waits that are given up all the time, at any moment, neither let two in nor leave the lock to nobody",
			run: func(t *trial) {
				t.churn(1, func(rnd *rand.Rand) job {
					j := job{req: t.req(""), weight: 1, writes: true}
					if rnd.IntN(3) > 0 {
						j.patience = time.Duration(1 + rnd.Int64N(int64(t.prompt())))
					}
					j.hold = time.Duration(rnd.Int64N(int64(t.prompt() / 8))) // so that others change their minds
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
				t.churn(most, func(rnd *rand.Rand) job {
					if rnd.IntN(3) == 0 {
						return job{req: t.req(""), weight: most, writes: true}
					}
					return job{req: t.reader(""), weight: 1, hold: time.Duration(rnd.Int64N(int64(t.prompt() / 8)))}
				})
			},
		},
		{
			name: "Churn/Slots",
			why:  "a semaphore whose holders come and go all the time is never overfull, and all get their turn",
			gate: slots(),
			run: func(t *trial) {
				t.churn(3, func(rnd *rand.Rand) job {
					return job{req: t.slot("", 3), weight: 1, hold: time.Duration(rnd.Int64N(int64(t.prompt() / 8)))}
				})
			},
		},
	}
}

// A job is what one turn of a churn does.
type job struct {
	req      driver.Request // but for the owner
	weight   int32          // of the place that it takes
	writes   bool           // it is alone, so that it may write
	patience time.Duration  // after which it gives up; 0 means that it must be served
	hold     time.Duration
}

// A register is what the lock guards: it is read and written in two steps, so that two writers lose an update. All of
// it is atomic, because the race detector does not see the order that a store makes.
type register struct {
	most   int32 // that the weights of those inside may come to
	inside atomic.Int32
	n      atomic.Int64
	writes atomic.Int64 // what n must be in the end
	token  atomic.Uint64

	mu    sync.Mutex
	wrong []string
}

func (r *register) use(j job, token uint64) {
	defer r.inside.Add(-j.weight)
	if r.inside.Add(j.weight) > r.most {
		r.fail("there are more holders at once than the lock allows")
	}
	if !j.writes {
		time.Sleep(j.hold)
		return
	}
	if last := r.token.Swap(token); token > 0 && token <= last {
		r.fail("token %d after %d", token, last)
	}
	n := r.n.Load()
	runtime.Gosched()
	time.Sleep(j.hold)
	r.n.Store(n + 1)
	r.writes.Add(1)
}

func (r *register) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

// churn lets goroutines of several drivers contend.
func (t *trial) churn(most int32, next func(rnd *rand.Rand) job) {
	t.Helper()
	drivers := []driver.Driver{t.open(), t.open(), t.open()}
	seed := rand.Uint64()
	goroutines, turns := 9, 5
	if t.h.Bubble {
		turns = 12
	}
	reg := register{most: most}
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Add(1)
		t.running.Go(func() {
			defer wg.Done()
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			for turn := range turns {
				j := next(rnd)
				j.req.Owner += fmt.Sprint(i, " ", turn)
				t.turn(drivers[i%len(drivers)], &reg, j)
			}
		})
	}
	wg.Wait()
	if len(reg.wrong) > 0 {
		t.Errorf("seed %d: %d things went wrong, such as: %s", seed, len(reg.wrong), reg.wrong[0])
	}
	if got, want := reg.n.Load(), reg.writes.Load(); got != want {
		t.Errorf("seed %d: %d updates are left of %d", seed, got, want)
	}
	t.mustBeFree(drivers[0], fmt.Sprintf("when all is done (seed %d)", seed))
}

// turn is one acquisition, with or without a change of mind.
func (t *trial) turn(d driver.Driver, reg *register, j job) {
	ctx, cancel := context.WithCancelCause(t.ctx)
	defer cancel(nil)
	limit, why := 2*patience, errors.New("no turn in a long time") // less than the TTL, by which all would be well again
	if j.patience > 0 {
		limit, why = j.patience, errGone
	}
	stop := time.AfterFunc(limit, func() { cancel(why) })
	defer stop.Stop()
	l, err := d.Acquire(ctx, j.req)
	switch {
	case err != nil && j.patience > 0 && ctx.Err() != nil:
		return
	case err != nil:
		reg.fail("Acquire = %v", err)
		return
	}
	reg.use(j, l.Grant().Token)
	if err := l.Release(context.WithoutCancel(ctx)); err != nil {
		reg.fail("Release = %v", err)
	}
}
