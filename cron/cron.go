// Package cron runs a scheduled job at most once per tick, although several hosts have the same
// schedule: if the host that runs it dies, the tick is lost. Each host calls [Runner.Run] at each
// tick, and one of them runs the job.
//
//	runner, err := cron.New(locker, 30*time.Second) // for a schedule of a minute
//	…
//	ran, err := runner.Run(ctx, "report", func(ctx context.Context, lock *snib.Lock) error { … })
//
// A lock alone does not achieve that. The clocks of the hosts differ, and a short job may have
// released its lock before the last host requests it; that host would run the job again. So the
// lock stays taken for a minimum time, the minHold of [New], by the store's clock.
//
// # How long
//
// minHold must be longer than the time between the first and the last host's request for the
// same tick. That time depends on their clocks, their load, and their connections to the
// store. And minHold must be shorter than the interval between two ticks by as much, or the
// next tick is skipped. Half the interval is the best choice, unless ticks are irregular. A
// host that gets its answer after minHold, maybe because it was suspended, does not run the tick,
// and neither does one whose store does not answer within [driver.AnswerTimeout].
//
// The hosts must agree on the ticks. If a job runs every five minutes from the start of its host,
// each host has ticks of its own, and each host runs the job. Use times of the day.
//
// # What is promised
//
// Under these conditions no tick is run twice, and each tick is run for which the lock is free
// and the store is reachable. A tick is not run at all if the previous run is still going on, if
// no host reaches the store, or if a host that was late ([ErrLate]) for the tick before got its
// lock, which stays taken for minHold.
//
// If a host dies while it runs a tick, or its release is not confirmed ([snib.ErrUnreleased]), the
// hosts that were refused do not run it again. But a host whose request comes only after the lease
// is over, which is at once after a death on some backends, runs the tick again. [snib.LockDelay]
// prevents that, where it matters more than the ticks that are skipped because of it. As with any
// lock, the resource must refuse what a paused host does too late: see package fence.
//
// Work that must be done once, and be done by another host if the first one dies, needs a record of
// what is done, in the same transaction as the work: see examples/ledger.
package cron

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
)

// ErrLate means that the store has not answered within minHold, by a clock that goes on while the
// host is suspended. The host that got the tick then might be the second one, so no host runs it.
const ErrLate driver.Sentinel = "the store has not answered within minHold"

// A Runner runs jobs once per tick. It is safe for concurrent use. One Runner is enough for
// all jobs with the same minHold.
type Runner struct {
	locker  *snib.Locker
	minHold time.Duration
}

// New returns a Runner that locks with locker, and keeps the lock of each tick taken for at least
// minHold. A minHold that is not positive, or that the options of locker exclude, such as a shorter
// [snib.MaxHold], is an [snib.ErrInvalid]. The other options of locker apply; it must use neither
// [snib.Shared] nor [snib.Slots].
func New(locker *snib.Locker, minHold time.Duration) (*Runner, error) {
	err := locker.Err()
	if err == nil && minHold <= 0 {
		err = driver.Invalidf("minHold: %v is not positive; half the time between two ticks is right", minHold)
	}
	if err == nil {
		locker = locker.With(snib.NoWait(), snib.MinHold(minHold))
		err = locker.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("cron: %w", err)
	}
	return &Runner{locker, minHold}, nil
}

// Run runs fn, or returns false if the tick belongs to another host, or if the previous run is
// still going on. Call it at each tick of the schedule, on each host, with the same name.
//
// The context passed to fn ends with ctx or with the hold, as in [snib.Locker.Do]. Errors are
// those of [Runner.Take], or what fn returned. A tick that was not run because the store is
// unavailable, or grants nothing after a restart, is an [snib.ErrUnavailable], and a warning in the
// log of [snib.Logging]. If the hold was lost while fn ran, the error matches [snib.ErrLost];
// another host may then run the tick, too.
func (r *Runner) Run(ctx context.Context, name string,
	fn func(ctx context.Context, lock *snib.Lock) error) (ran bool, err error) {
	if fn == nil {
		return false, fmt.Errorf("cron: %w", driver.Invalidf("function: it is nil"))
	}
	began := driver.Now()
	err = r.locker.Do(ctx, name, func(ctx context.Context, lock *snib.Lock) error {
		if err := r.checkAge(name, began); err != nil {
			return err
		}
		ran = true
		return fn(ctx, lock)
	})
	if !ran && errors.Is(err, snib.ErrHeld) {
		return false, nil
	}
	return ran, err
}

// Take acquires the lock of a tick, for schedulers that run the job themselves, between Take and
// Release: see examples/scheduled-job. If the tick belongs to another host, or the previous run is
// still going on, it returns [snib.ErrHeld] at once. Other errors are [ErrLate] and those of
// [snib.Locker.TryAcquire]. After any error the job must not run.
func (r *Runner) Take(ctx context.Context, name string) (*snib.Lock, error) {
	began := driver.Now()
	lock, err := r.locker.Acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := r.checkAge(name, began); err != nil {
		_ = lock.Release() // if it fails, the lock lapses by itself
		return nil, err
	}
	return lock, nil
}

// checkAge returns ErrLate if minHold is over since began, when the lock of a tick was requested.
// It compares Instants, because a timer stands still while the host is suspended.
func (r *Runner) checkAge(name string, began driver.Instant) error {
	if driver.Now().Sub(began) < r.minHold {
		return nil
	}
	return fmt.Errorf("cron: %q: %w", name, ErrLate)
}
