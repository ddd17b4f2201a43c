// Package cron runs a scheduled job once for each tick of its schedule, although several hosts have the schedule: each of them
// calls [Runner.Run] at each tick, and one of them runs the job.
//
//	runner, err := cron.New(locker, 30*time.Second) // for a schedule of a minute
//	…
//	ran, err := runner.Run(ctx, "report", func(ctx context.Context, lock *snib.Lock) error { … })
//
// A lock alone does not do that: the clocks of hosts differ, and a job that takes less time than they differ by has given the lock
// up before the last host asks for it, which then runs the job again. So the lock stays taken for a minimum time, the
// minHold of [New], by the store's clock.
//
// # How long
//
// minHold has to be longer than any two hosts can be apart in asking for one tick: by their clocks, their load, and the way to the store. And
// it has to be shorter than the interval between two ticks by as much, or the next tick is skipped. Half the interval is the
// best that there is, and the right choice unless ticks are irregular. A host that has no answer within minHold gives up, and
// so does one whose store does not answer within [driver.AnswerTimeout].
//
// # What is promised
//
// While that holds, no tick is run twice, and each is run that finds the lock free and the store in reach. A tick is not run at all
// if the run before is still going on, or if nobody gets through to the store.
//
// When the host dies that runs a tick, those that were turned away do not come back to it. One that asks only after the lease of
// the dead host is over, which is at once on some backends, runs the tick again; [snib.LockDelay] prevents that where it matters
// more than the ticks that are skipped for it. And as with any lock, what a paused host must not do late has to be refused at the
// resource: see package fence.
package cron

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
)

// ErrLate means that the store has not answered within minHold. Whoever got the tick then could be the second one, so nobody does.
const ErrLate driver.Sentinel = "the store has not answered within minHold"

// A Runner runs jobs once per tick. It is safe for concurrent use; one is enough for all jobs of the same minHold.
type Runner struct {
	locker  *snib.Locker
	minHold time.Duration
}

// New returns a Runner that locks with locker, and keeps each tick's lock taken for at least minHold. A duration that is not positive
// is an [snib.ErrInvalid]. The other options of locker apply; it must ask for neither [snib.Shared] nor [snib.Slots].
func New(locker *snib.Locker, minHold time.Duration) (*Runner, error) {
	switch {
	case locker == nil:
		return nil, fmt.Errorf("cron: %w Locker: it is nil", snib.ErrInvalid)
	case minHold <= 0:
		return nil, fmt.Errorf("cron: %w minHold: %v is not positive; half the time between two ticks is right", snib.ErrInvalid, minHold)
	}
	return &Runner{locker.With(snib.NoWait(), snib.MinHold(minHold)), minHold}, nil
}

// Run runs fn, or reports false if the tick belongs to another host, or if the run before goes on. Call it at each tick of the schedule, on
// each host, with the same name.
//
// Fn's context ends with ctx, or with the hold, as in [snib.Locker.Do]. Errors are those of [Runner.Take], or what fn
// returned. If the hold was lost while fn ran, the error matches [snib.ErrLost]: then the tick may be run by another host, too.
func (r *Runner) Run(ctx context.Context, name string, fn func(ctx context.Context, lock *snib.Lock) error) (ran bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(r.minHold, func() { cancel(ErrLate) }) // not a deadline: fn has all the time that it wants
	defer late.Stop()
	err = r.locker.Do(ctx, name, func(ctx context.Context, lock *snib.Lock) error {
		if !late.Stop() {
			return ErrLate
		}
		ran = true
		return fn(ctx, lock)
	})
	if !ran && errors.Is(err, snib.ErrHeld) {
		return false, nil
	}
	return ran, err
}

// Take is for schedulers that call the job themselves, between Take and Release: it takes the tick's lock, and answers [snib.ErrHeld] at once
// if the tick belongs to another host, or the run before goes on. Other errors are [ErrLate], and those of [snib.Locker.TryAcquire]; with any of them
// the job must not run.
func (r *Runner) Take(ctx context.Context, name string) (*snib.Lock, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.minHold, ErrLate)
	defer cancel()
	return r.locker.Acquire(ctx, name)
}
