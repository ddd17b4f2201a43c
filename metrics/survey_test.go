package metrics_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/metrics"
)

// A listDriver lists the locks that set has set.
type listDriver struct {
	driver.Driver

	mu    sync.Mutex
	locks []driver.Status
	err   error
}

// set changes what the next survey finds.
func (l *listDriver) set(locks []driver.Status, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.locks, l.err = locks, err
}

func (l *listDriver) List(_ context.Context, _ string, yield func(driver.Status) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.locks {
		if !yield(s) {
			return nil
		}
	}
	return l.err
}

func TestSurvey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCollector(t, metrics.Options{MaxResources: 2})
		hold, endless := driver.Holding{}, driver.Holding{Left: driver.NoExpiry}
		locks := []driver.Status{
			{Name: "invoices/1", Holders: []driver.Holding{hold},
				Waiters: []driver.Waiting{{}, {Waited: time.Minute}, {Waited: time.Second}}},
			{Name: "invoices/2", Holders: []driver.Holding{endless}},
			{Name: "pool", Holders: []driver.Holding{hold, hold}},
			{Name: "third", Holders: []driver.Holding{endless}},
			{Name: "fourth", Holders: []driver.Holding{hold}},
		}
		d := &listDriver{Driver: memory(), locks: locks}
		ctx, stop := context.WithCancelCause(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Survey(ctx, d, time.Minute) }()
		synctest.Wait()
		began := float64(time.Now().Unix())
		first := scrape{
			`distributed_lock_store_locks{backend="memory",resource="invoices"}`:                2,
			`distributed_lock_store_waiting{backend="memory",resource="invoices"}`:              3,
			`distributed_lock_store_longest_wait_seconds{backend="memory",resource="invoices"}`: 60,
			`distributed_lock_store_longest_wait_seconds{backend="memory",resource="pool"}`:     0,
			`distributed_lock_store_locks_without_expiry{backend="memory",resource="invoices"}`: 1,
			`distributed_lock_store_locks{backend="memory",resource="pool"}`:                    2,
			`distributed_lock_store_locks{backend="memory",resource="other"}`:                   2,
			`distributed_lock_store_locks_without_expiry{backend="memory",resource="other"}`:    1,
			`distributed_lock_store_survey_timestamp_seconds{backend="memory"}`:                 began,
			`distributed_lock_store_survey_failures_total{backend="memory"}`:                    0,
		}
		read(t, c).check(t, first)

		d.set(locks, errors.New("no route to host"))
		time.Sleep(time.Minute)
		synctest.Wait()
		first[`distributed_lock_store_survey_failures_total{backend="memory"}`] = 1
		read(t, c).check(t, first) // the last result stays, with its time

		d.set(locks[:1], nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		got := read(t, c)
		got.check(t, scrape{
			`distributed_lock_store_locks{backend="memory",resource="invoices"}`:                1,
			`distributed_lock_store_locks_without_expiry{backend="memory",resource="invoices"}`: 0,
			`distributed_lock_store_survey_timestamp_seconds{backend="memory"}`:                 began + 120,
		})
		if n, ok := got[`distributed_lock_store_locks{backend="memory",resource="pool"}`]; ok {
			t.Errorf("%v locks are exported of a resource that has none any more", n)
		}
		why := errors.New("enough")
		stop(why)
		if err := <-ended; !errors.Is(err, why) {
			t.Errorf("Survey = %v, want %v", err, why)
		}
	})
}

func TestSurveyRefuses(t *testing.T) {
	c := newCollector(t, metrics.Options{})
	if err := c.Survey(t.Context(), memory(), 0); !errors.Is(err, snib.ErrInvalid) {
		t.Errorf("Survey each 0s = %v, want %v", err, snib.ErrInvalid)
	}
}
