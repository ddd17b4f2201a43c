package metrics_test

import (
	"context"
	"errors"
	"fmt"
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
	driver.Inspector

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
			{Name: "invoices/1", Holders: []driver.Holding{hold}, Waiters: make([]driver.Waiting, 3)},
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

// TestSurveyOfMemory checks a survey of a real driver.
func TestSurveyOfMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := newCollector(t, metrics.Options{}), memory()
		l := open(t, d)
		for i := range 5 {
			defer release(t, acquire(t, l, fmt.Sprintf("invoices/%d", i)))
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = c.Survey(ctx, d, time.Minute) }() // it ends with ctx
		synctest.Wait()
		read(t, c).check(t, scrape{
			`distributed_lock_store_locks{backend="memory",resource="invoices"}`:                5,
			`distributed_lock_store_locks_without_expiry{backend="memory",resource="invoices"}`: 0,
		})
	})
}

func TestSurveyRefuses(t *testing.T) {
	c := newCollector(t, metrics.Options{})
	if err := c.Survey(t.Context(), memory(), 0); !errors.Is(err, snib.ErrInvalid) {
		t.Errorf("Survey each 0s = %v, want %v", err, snib.ErrInvalid)
	}
	blind := struct{ driver.Driver }{memory()}
	if err := c.Survey(t.Context(), blind, time.Minute); !errors.Is(err, snib.ErrInvalid) {
		t.Errorf("Survey of a driver without Inspector = %v, want %v", err, snib.ErrInvalid)
	}
}
