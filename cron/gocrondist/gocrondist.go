// Package gocrondist lets several hosts share the jobs of the scheduler github.com/go-co-op/gocron/v2: [NewLocker] runs each tick of
// each job on one of the hosts, and [Elector] runs all jobs on one of them.
//
//	locker, err := gocrondist.NewLocker(snibLocker, 30*time.Second) // for jobs that run each minute
//	…
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// # Which one
//
// The Locker spreads the jobs over the hosts, and runs a tick once whichever host comes first: see package cron for the conditions.
//
// The Elector needs no word to the store for a tick, and no condition on the time between ticks. But when the leadership passes on, hosts whose
// clocks differ may both run the tick of that moment, or neither.
//
// # What the scheduler does not do
//
// It gives jobs no context that ends with the lock, and no fencing token. A job that has to know better uses [cron.Runner] itself, or
// [Elector.Lock].
//
// The hosts have to agree on the ticks: of a job that runs every five minutes from when its host was started, each host has ticks of
// its own, and then each runs it. Use times of the day, or gocron.WithStartAt.
package gocrondist

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cron"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/leader"
)

// NewLocker returns a Locker for gocron.WithDistributedLocker, or for jobs with an interval of their own gocron.WithDistributedJobLocker.
// Arguments and errors are those of [cron.New]: minHold is best half the shortest interval between two ticks of a job.
//
// The lock of a job has its name, gocron.WithName, which must be the same on all hosts, and another one for each job. The
// default, the name of its function, is neither for function literals.
func NewLocker(l *snib.Locker, minHold time.Duration) (gocron.Locker, error) {
	r, err := cron.New(l, minHold)
	if err != nil {
		return nil, err
	}
	return locker{r}, nil
}

type locker struct{ runner *cron.Runner }

// Lock implements gocron.Locker. With an error the job is skipped.
func (l locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lock, err := l.runner.Take(ctx, job)
	if err != nil {
		return nil, err
	}
	return hold{lock}, nil
}

type hold struct{ lock *snib.Lock }

// Unlock implements gocron.Lock. Its context is that of the job, which may have been cancelled: the lock is given up all the same.
func (h hold) Unlock(context.Context) error { return h.lock.Release() }

// ErrNotLeader is what [Elector.IsLeader] answers on hosts that do not lead.
const ErrNotLeader driver.Sentinel = "another host leads, or none"

// An Elector is a candidate for leadership, for gocron.WithDistributedElector. It campaigns while [Elector.Run] runs. It is safe for
// concurrent use.
type Elector struct {
	locker *snib.Locker
	name   string
	opts   []leader.Option
	lock   atomic.Pointer[snib.Lock] // of the last term, which may have ended; nil before the first
}

// NewElector returns a candidate for the leadership under a name. What is wrong with the arguments is said by Run.
func NewElector(l *snib.Locker, name string, opts ...leader.Option) *Elector {
	return &Elector{locker: l, name: name, opts: opts}
}

// Run campaigns, and leads, until ctx is done, and then resigns; its errors are those of [leader.Run]. Shut the scheduler
// down before, or jobs go on while another host leads already.
func (e *Elector) Run(ctx context.Context) error {
	return leader.Run(ctx, e.locker, e.name, func(ctx context.Context, lock *snib.Lock) error {
		e.lock.Store(lock)
		<-ctx.Done()
		return nil
	}, e.opts...)
}

// IsLeader implements gocron.Elector: it returns nil if this host leads, by its own clock, and else an error that matches
// [ErrNotLeader]. It does not ask the store.
func (e *Elector) IsLeader(context.Context) error {
	if e.Lock() == nil {
		return fmt.Errorf("gocrondist: %q: %w", e.name, ErrNotLeader)
	}
	return nil
}

// Lock returns the hold by which this host leads, or nil if it does not. Jobs find there a context that ends with the leadership, and the
// fencing token.
func (e *Elector) Lock() *snib.Lock {
	lock := e.lock.Load()
	if lock == nil || lock.Validity() <= 0 {
		return nil
	}
	return lock
}
