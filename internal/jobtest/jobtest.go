// Package jobtest has what tests of backends do with a driver: they wait for a lock, and keep one.
// It also has the job that they give to other processes, in a [livetest.Child]: hold a lock.
package jobtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// A Job is something to do with a driver.
type Job struct {
	Role string // "hold"
	Req  driver.Request
}

// Do does the job until ctx is done.
func (j Job) Do(ctx context.Context, d driver.Driver) error {
	if j.Role != "hold" {
		return fmt.Errorf("there is no role %q", j.Role)
	}
	return j.hold(ctx, d)
}

// hold acquires the lock, says "held" and the token, and renews the lease until the
// process is told to end. When a renewal reports a loss, hold says "lost", and then
// "late" and the result of a release.
func (j Job) hold(ctx context.Context, d driver.Driver) error {
	l, err := d.Acquire(ctx, j.Req)
	if err != nil {
		return err
	}
	livetest.Say("held", l.Grant().Token)
	tick := time.NewTicker(j.Req.TTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := d.Renew(ctx, []driver.Lease{l})[0].Err; errors.Is(err, driver.ErrLost) {
				livetest.Say("lost", err)
				livetest.Say("late", l.Release(context.WithoutCancel(ctx)))
				return nil
			}
		case <-ctx.Done():
			return l.Release(context.WithoutCancel(ctx))
		}
	}
}
