package sqlitelock

import (
	"context"
	"strconv"
	"syscall"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// doSystemJob does a job that is tested on Linux only, or holds the lock.
func (j job) doSystemJob(ctx context.Context, d *Driver) error {
	switch j.Role {
	case "stop in turn", "stop in transaction":
		return j.stopAtWork(ctx, d)
	case "wait":
		return j.waitMany(ctx, d)
	default:
		return livetest.Hold(ctx, d, j.Req)
	}
}

// waitMany waits with many requests at once, and reports how much processor time that
// takes per second, measured over two seconds.
func (j job) waitMany(ctx context.Context, d *Driver) error {
	for i := range j.Rounds {
		req := j.Req
		req.ID += strconv.Itoa(i)
		go d.Acquire(ctx, req)
	}
	for {
		st, err := d.Status(ctx, j.Req.Name)
		if err != nil {
			return err
		}
		if len(st.Waiters) == j.Rounds {
			break
		}
		time.Sleep(10 * time.Millisecond) // poll interval
	}
	before := cpuTime()
	time.Sleep(2 * time.Second) // the measured time
	livetest.Say("cpu", int64(cpuTime()-before)/2)
	<-ctx.Done()
	return nil
}

// cpuTime returns the processor time that the process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
