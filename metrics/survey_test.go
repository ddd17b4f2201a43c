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

// TestSurveyOfListings checks that a survey counts the locks of listings, that one lock of another
// library for which snib waits counts once, and that a listing that fails fails the survey.
func TestSurveyOfListings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCollector(t, metrics.Options{})
		own, endless := driver.Holding{Token: 7}, driver.Holding{Left: driver.NoExpiry}
		waitedFor := driver.Status{Name: "order/2", Holders: []driver.Holding{endless}}
		withQueue := waitedFor
		withQueue.Waiters = make([]driver.Waiting, 1)
		d := &listDriver{Driver: memory(), locks: []driver.Status{{Name: "order/1", Holders: []driver.Holding{own}},
			withQueue}}
		others := &listDriver{locks: []driver.Status{waitedFor, {Name: "order/3", Holders: []driver.Holding{endless}}}}
		prefixes := make(chan string, 10)
		listing := metrics.Listing{Prefix: "order/",
			List: func(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
				prefixes <- prefix
				return others.List(ctx, prefix, yield)
			}}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = c.Survey(ctx, d, time.Minute, listing) }() // it ends with ctx
		synctest.Wait()
		want := scrape{
			`distributed_lock_store_locks{backend="memory",resource="order"}`:                3,
			`distributed_lock_store_waiting{backend="memory",resource="order"}`:              1,
			`distributed_lock_store_locks_without_expiry{backend="memory",resource="order"}`: 2,
			`distributed_lock_store_survey_failures_total{backend="memory"}`:                 0,
		}
		read(t, c).check(t, want)
		if got := <-prefixes; got != "order/" {
			t.Errorf("the prefix is %q", got)
		}

		others.set(nil, errors.New("NOPERM"))
		time.Sleep(time.Minute)
		synctest.Wait()
		want[`distributed_lock_store_survey_failures_total{backend="memory"}`] = 1
		read(t, c).check(t, want)
	})
}

func TestSurveyRefuses(t *testing.T) {
	c := newCollector(t, metrics.Options{})
	if err := c.Survey(t.Context(), memory(), 0); !errors.Is(err, snib.ErrInvalid) {
		t.Errorf("Survey each 0s = %v, want %v", err, snib.ErrInvalid)
	}
	if err := c.Survey(t.Context(), memory(), time.Minute, metrics.Listing{Prefix: "lock:"}); !errors.Is(err,
		snib.ErrInvalid) {
		t.Errorf("Survey with a listing without List = %v, want %v", err, snib.ErrInvalid)
	}
}
