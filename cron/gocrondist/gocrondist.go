// Package gocrondist lets several hosts share the jobs of the scheduler
// github.com/go-co-op/gocron/v2: one of the hosts runs each tick of each job.
//
//	locker, err := gocrondist.NewLocker(snibLocker, 30*time.Second) // for jobs that run each minute
//	…
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// The host that comes first runs the tick. Package cron describes under which conditions a tick is
// run once. If one host is to run all jobs, start and shut down the scheduler in the function of
// leader.Run.
//
// # What the scheduler does not do
//
// The scheduler gives jobs no context that ends with the lock, and no fencing token. A job that
// needs them uses [cron.Runner] itself.
//
// The hosts must agree on the ticks. If a job runs every five minutes from the start
// of its host, each host has its own ticks, and each host runs the job. Use times of
// the day, or gocron.WithStartAt.
package gocrondist

import (
	"context"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cron"
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
