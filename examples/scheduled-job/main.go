// Command scheduled-job runs a job at regular times with the scheduler gocron. Start it
// several times with the same lock file: each tick is run by only one of the processes,
// although their clocks differ by the flag -skew.
//
//	go run ./scheduled-job -locks /tmp/locks.db &
//	go run ./scheduled-job -locks /tmp/locks.db -skew 20ms
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cron"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/sqlitelock"
)

func main() {
	var s schedule
	locks := flag.String("locks", "locks.db", "the SQLite file with the locks")
	flag.DurationVar(&s.Every, "every", 2*time.Second, "the time between two ticks")
	flag.DurationVar(&s.Skew, "skew", 0, "how late the clock of this process is")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	store, err := sqlitelock.Open(ctx, *locks)
	if err == nil {
		err = s.run(ctx, store, func(tick int64, ran bool) {
			what := "leaves the tick to another process:"
			if ran {
				what = "RUNS the tick"
			}
			fmt.Fprintf(os.Stdout, "process %d %s %d\n", os.Getpid(), what, tick)
		})
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scheduled-job:", err)
		os.Exit(1) //nolint:forbidigo // nothing is left to be done
	}
}

// A schedule is the configuration of one process.
type schedule struct{ Every, Skew time.Duration }

// run runs the job until ctx is done. It calls report for each tick, with the tick's number
// since 1970 and whether this process ran it.
func (s schedule) run(ctx context.Context, store driver.Driver, report func(tick int64, ran bool)) error {
	if s.Every <= 0 || s.Skew < 0 {
		return fmt.Errorf("every %v, with a skew of %v: want a positive time, and a skew that is not negative", s.Every,
			s.Skew)
	}
	locker, err := snib.New(store, snib.Prefix("jobs/"))
	if err != nil {
		return errors.Join(err, store.Close())
	}
	defer locker.Close() //nolint:errcheck // what it leaves behind lapses
	runner, err := cron.New(locker, s.Every/2)
	if err != nil {
		return err
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(tickLocker{runner}))
	if err != nil {
		return err
	}
	now := func() int64 { return time.Now().Add(-s.Skew).UnixNano() / int64(s.Every) }
	// All processes have their ticks at the same times.
	last := time.Unix(0, now()*int64(s.Every)).Add(s.Skew)
	_, err = scheduler.NewJob(gocron.DurationJob(s.Every), gocron.NewTask(func() { report(now(), true) }),
		gocron.WithName("report"), // the lock's name, too: the same on all hosts, and another one for each job
		gocron.WithStartAt(gocron.WithStartDateTimePast(last)),
		gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, job string, err error) {
			if errors.Is(err, snib.ErrHeld) {
				report(now(), false)
				return
			}
			// For example, the store is unavailable.
			fmt.Fprintf(os.Stderr, "scheduled-job: %s: %v\n", job, err)
		})))
	if err != nil {
		return err
	}
	scheduler.Start()
	<-ctx.Done()
	return scheduler.Shutdown()
}

// A tickLocker lets the process that comes first run a tick. gocron gives the job neither a context
// that ends with the lock nor the fencing token: a job that needs them calls [cron.Runner.Run].
type tickLocker struct{ runner *cron.Runner }

// Lock implements [gocron.Locker]. If it returns an error, the job is skipped.
func (l tickLocker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lock, err := l.runner.Take(ctx, job)
	if err != nil {
		return nil, err
	}
	return tickLock{lock}, nil
}

type tickLock struct{ lock *snib.Lock }

// Unlock implements [gocron.Lock]. The context may have ended with the job.
func (h tickLock) Unlock(context.Context) error { return h.lock.Release() }
