// Package gocrondist lets several hosts share the jobs of the scheduler
// github.com/go-co-op/gocron/v2. With [NewLocker], one of the hosts runs each tick of each job.
// With an [Elector], one of the hosts runs all jobs.
//
//	locker, err := gocrondist.NewLocker(snibLocker, 30*time.Second) // for jobs that run each minute
//	…
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// # Which one
//
// The Locker spreads the jobs over the hosts: the host that comes first runs the tick. Package
// cron describes under which conditions a tick is run once.
//
// The Elector sends no request to the store for a tick, and does not depend on the time
// between ticks. But when the leadership changes, hosts whose clocks differ may both run the
// tick of that moment, or neither.
//
// # What the scheduler does not do
//
// The scheduler gives jobs no context that ends with the lock, and no fencing token. A job that
// needs them uses [cron.Runner] itself, or [Elector.Lock].
//
// The hosts must agree on the ticks. If a job runs every five minutes from the start
// of its host, each host has its own ticks, and each host runs the job. Use times of
// the day, or gocron.WithStartAt.
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

// NewLocker returns a Locker for gocron.WithDistributedLocker or, for jobs with an interval of
// their own, gocron.WithDistributedJobLocker. Arguments and errors are those of [cron.New]. The
// best minHold is half the shortest interval between two ticks of a job.
//
// The name of a job's lock is that of the job, gocron.WithName. It must be the
// same on all hosts, and differ from job to job. For function literals, the
// default, the function's name, is neither.
func NewLocker(l *snib.Locker, minHold time.Duration) (gocron.Locker, error) {
	r, err := cron.New(l, minHold)
	if err != nil {
		return nil, err
	}
	return tickLocker{r}, nil
}

type tickLocker struct{ runner *cron.Runner }

// Lock implements gocron.Locker. If it returns an error, the job is skipped.
func (l tickLocker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lock, err := l.runner.Take(ctx, job)
	if err != nil {
		return nil, err
	}
	return tickLock{lock}, nil
}

type tickLock struct{ lock *snib.Lock }

// Unlock implements gocron.Lock. It ignores the job's context, which may have been cancelled, and
// releases the lock all the same.
func (h tickLock) Unlock(context.Context) error { return h.lock.Release() }

// ErrNotLeader is what [Elector.IsLeader] returns on hosts that do not lead.
const ErrNotLeader driver.Sentinel = "another host leads, or none"

// An Elector is a candidate for leadership, for gocron.WithDistributedElector. It campaigns while
// [Elector.Run] runs. It is safe for concurrent use.
type Elector struct {
	locker *snib.Locker
	name   string
	opts   []leader.Option
	lock   atomic.Pointer[snib.Lock] // from the last term, which may have ended; nil before the first
}

// NewElector returns a candidate for the leadership under a name. If an argument is
// invalid, Run returns the error.
func NewElector(l *snib.Locker, name string, opts ...leader.Option) *Elector {
	return &Elector{locker: l, name: name, opts: opts}
}

// Run campaigns, and leads, until ctx is done, and then resigns. Its errors are those
// of [leader.Run]. Shut the scheduler down before ctx ends; otherwise jobs go on
// while another host already leads.
func (e *Elector) Run(ctx context.Context) error {
	return leader.Run(ctx, e.locker, e.name, func(ctx context.Context, lock *snib.Lock) error {
		e.lock.Store(lock)
		<-ctx.Done()
		return nil
	}, e.opts...)
}

// IsLeader implements gocron.Elector. It returns nil if this host leads by its own clock, and
// otherwise an error that matches [ErrNotLeader]. It sends no request to the store.
func (e *Elector) IsLeader(context.Context) error {
	if e.Lock() == nil {
		return fmt.Errorf("gocrondist: %q: %w", e.name, ErrNotLeader)
	}
	return nil
}

// Lock returns the hold by which this host leads, or nil if it does not lead. From the hold, jobs
// get a context that ends with the leadership, and the fencing token.
func (e *Elector) Lock() *snib.Lock {
	lock := e.lock.Load()
	if lock == nil || lock.Validity() <= 0 {
		return nil
	}
	return lock
}
