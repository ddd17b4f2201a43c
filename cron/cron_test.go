package cron_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cron"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/memlock"
)

const interval = time.Minute

var errJob = errors.New("the job failed")

// host sets up another host. It returns a Runner with its own Locker on the same store, and the
// host's connection to the store, which a test can cut.
func host(t *testing.T, s *memlock.Store) (*cron.Runner, *fault.Driver) {
	t.Helper()
	return hostWith(t, s, interval/2, fault.Rule{})
}

func hostWith(t *testing.T, s *memlock.Store, minHold time.Duration, rule fault.Rule) (*cron.Runner, *fault.Driver) {
	t.Helper()
	d := fault.Wrap(s.Open(), fault.Plan{Rules: []fault.Rule{rule}})
	l, err := snib.New(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	r, err := cron.New(l, minHold)
	if err != nil {
		t.Fatal(err)
	}
	return r, d
}

// TestOncePerTick checks that three hosts run the job of each tick once if their clocks differ by
// less than minHold, which is half the interval.
func TestOncePerTick(t *testing.T) {
	const ticks = 60
	tests := []struct {
		name string
		skew time.Duration // from one host to the next
		job  time.Duration
		same bool // three goroutines of one host run the ticks
		runs int  // of all ticks
	}{
		{name: "NoSkew", job: time.Millisecond, runs: ticks},
		{name: "Skew", skew: 20 * time.Millisecond, job: time.Millisecond, runs: ticks},
		{name: "SkewOfOneHost", skew: 20 * time.Millisecond, job: time.Millisecond, same: true, runs: ticks},
		{name: "LongJob", skew: 20 * time.Millisecond, job: interval - time.Second, runs: ticks},
		{name: "GreatSkew", skew: interval/4 - time.Millisecond, job: time.Millisecond, runs: ticks},
		{name: "JobOverTwoTicks", skew: 20 * time.Millisecond, job: 2*interval - time.Second, runs: ticks / 2},
		// The total skew must be less than half the interval, and is not.
		{name: "TooMuchSkew", skew: interval/4 + time.Millisecond, job: time.Millisecond, runs: ticks * 3 / 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(memlock.Store)
				var mu sync.Mutex
				var running, runs int
				job := func(context.Context, *snib.Lock) error {
					mu.Lock()
					runs++
					running++
					if running > 1 {
						t.Errorf("%d runs at a time", running)
					}
					mu.Unlock()
					time.Sleep(tt.job)
					mu.Lock()
					running--
					mu.Unlock()
					return nil
				}
				one, _ := host(t, s)
				var hosts sync.WaitGroup
				for i := range 3 {
					r, _ := host(t, s)
					if tt.same {
						r = one
					}
					hosts.Go(func() {
						time.Sleep(time.Duration(i) * tt.skew)
						for range ticks {
							hosts.Go(func() { // the next tick does not wait for a long job
								if _, err := r.Run(t.Context(), "report", job); err != nil {
									t.Error(err)
								}
							})
							time.Sleep(interval)
						}
					})
				}
				hosts.Wait()
				if runs != tt.runs {
					t.Errorf("%d runs in %d ticks, want %d", runs, ticks, tt.runs)
				}
			})
		})
	}
}

// TestTake checks that Take excludes other hosts for minHold from the grant, and that Release does
// not shorten that time.
func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(memlock.Store)
		a, _ := host(t, s)
		b, _ := host(t, s)
		lock, err := a.Take(t.Context(), "report")
		if err != nil {
			t.Fatal(err)
		}
		if err = lock.Release(); err != nil {
			t.Fatal(err)
		}
		for _, r := range []*cron.Runner{a, b} {
			if _, err = r.Take(t.Context(), "report"); !errors.Is(err, snib.ErrHeld) {
				t.Errorf("Take = %v right after a Release, want ErrHeld", err)
			}
		}
		time.Sleep(interval/2 - 1)
		if _, err = b.Take(t.Context(), "report"); !errors.Is(err, snib.ErrHeld) {
			t.Errorf("Take = %v just before minHold was over, want ErrHeld", err)
		}
		time.Sleep(time.Nanosecond)
		if _, err = b.Take(t.Context(), "report"); err != nil {
			t.Errorf("Take = %v when minHold was over", err)
		}
	})
}

// TestLate checks that Run and Take give up soon on a store that hangs, and that they don't run the
// job of a tick long after the tick. Their errors don't look as if the caller had given up.
func TestLate(t *testing.T) {
	methods := []struct {
		name string
		call func(context.Context, *cron.Runner) error
	}{
		{"Run", func(ctx context.Context, r *cron.Runner) error {
			ran, err := r.Run(ctx, "report", func(context.Context, *snib.Lock) error { return nil })
			if ran != (err == nil) {
				return errors.New("Run does not say whether the job was run")
			}
			return err
		}},
		{"Take", func(ctx context.Context, r *cron.Runner) error {
			_, err := r.Take(ctx, "report")
			return err
		}},
	}
	slow := fault.Rule{Op: fault.Acquire, After: 2 * time.Second}
	hangs := fault.Rule{Op: fault.Acquire, Effect: fault.Hang}
	tests := []struct {
		name    string
		rule    fault.Rule
		minHold time.Duration
		want    error
		after   time.Duration
	}{
		{"InTime", slow, slow.After + 1, nil, slow.After},
		{"TooLate", slow, slow.After, cron.ErrLate, slow.After},
		{"NoAnswer", hangs, time.Second, snib.ErrUnavailable, driver.AnswerTimeout},
	}
	for _, r := range methods {
		for _, tt := range tests {
			t.Run(r.name+"/"+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					runner, _ := hostWith(t, new(memlock.Store), tt.minHold, tt.rule)
					began := time.Now()
					err := r.call(t.Context(), runner)
					if !errors.Is(err, tt.want) || time.Since(began) != tt.after {
						t.Errorf("%v after %v, want %v after %v", err, time.Since(began), tt.want, tt.after)
					}
					if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%v matches an error of package context", err)
					}
				})
			})
		}
	}
}

// TestOutage checks that a tick that was not run because of the store is an error and a warning in
// the log, and not one that another host has run. So is one during the grace period of a store.
func TestOutage(t *testing.T) {
	tests := []struct {
		name string
		fail func(*fault.Driver, *memlock.Store) driver.Driver
	}{
		{"Refused", func(d *fault.Driver, _ *memlock.Store) driver.Driver { d.Sever(fault.Fail); return d }},
		{"Hung", func(d *fault.Driver, _ *memlock.Store) driver.Driver { d.Sever(fault.Hang); return d }},
		{"Grace", func(_ *fault.Driver, s *memlock.Store) driver.Driver {
			grace := fmt.Errorf("%w: the server restarted; it grants nothing for 30s", driver.ErrUnavailable)
			return fault.Wrap(s.Open(), fault.Plan{Rules: []fault.Rule{{Op: fault.Acquire, Effect: fault.Fail, Err: grace}}})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(memlock.Store)
				var log bytes.Buffer
				l, err := snib.New(tt.fail(fault.Wrap(s.Open(), fault.Plan{}), s),
					snib.Logging(slog.New(slog.NewTextHandler(&log, nil))))
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				r, err := cron.New(l, interval/2)
				if err != nil {
					t.Fatal(err)
				}
				ran, err := r.Run(t.Context(), "report", func(context.Context, *snib.Lock) error { return nil })
				if ran || !errors.Is(err, snib.ErrUnavailable) || errors.Is(err, snib.ErrHeld) {
					t.Errorf("Run = %v, %v; want false, ErrUnavailable", ran, err)
				}
				if !strings.Contains(log.String(), `level=WARN msg="acquire failed" lock=report`) {
					t.Errorf("no warning in the log: %q", log.String())
				}
			})
		})
	}
}

// TestRun checks that Run reports whether it ran the job, and returns the job's error.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(memlock.Store)
		r, net := host(t, s)
		other, _ := host(t, s)
		run := func(name string, fn func(context.Context, *snib.Lock) error, wantRan bool, want error) {
			t.Helper()
			if ran, err := r.Run(t.Context(), name, fn); ran != wantRan || !errors.Is(err, want) {
				t.Errorf("Run(%q) = %v, %v, want %v, %v", name, ran, err, wantRan, want)
			}
		}
		returns := func(err error) func(context.Context, *snib.Lock) error {
			return func(context.Context, *snib.Lock) error { return err }
		}
		run("ok", returns(nil), true, nil)
		run("ok", returns(errJob), false, nil) // the same tick
		run("error", returns(errJob), true, errJob)
		run("held", returns(snib.ErrHeld), true, snib.ErrHeld) // returned by the job
		run("", returns(nil), false, snib.ErrInvalid)
		run("no job", nil, false, snib.ErrInvalid)
		run("long", func(ctx context.Context, _ *snib.Lock) error { time.Sleep(2 * interval); return ctx.Err() }, true, nil)
		run("lost", func(ctx context.Context, _ *snib.Lock) error {
			net.Sever(fault.Fail)
			<-ctx.Done()
			return nil
		}, true, snib.ErrLost)
		run("gone", returns(nil), false, fault.ErrSevered)
		net.Heal()

		func() {
			defer func() { recover() }()
			r.Run(t.Context(), "panic", func(context.Context, *snib.Lock) error { panic("ouch") })
		}()
		time.Sleep(interval / 2)
		if lock, err := other.Take(t.Context(), "panic"); err != nil {
			t.Errorf("Take = %v at the tick after a panic", err)
		} else {
			lock.Release()
		}
	})
}

func TestNew(t *testing.T) {
	l, err := snib.New(memlock.New())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err = cron.New(nil, time.Second); !errors.Is(err, snib.ErrInvalid) {
		t.Errorf("New without a Locker = %v, want ErrInvalid", err)
	}
	for _, d := range []time.Duration{0, -1} {
		if _, err = cron.New(l, d); !errors.Is(err, snib.ErrInvalid) {
			t.Errorf("New with minHold %v = %v, want ErrInvalid", d, err)
		}
	}
	short := l.With(snib.MaxHold(time.Second))
	for d, of := range map[time.Duration]*snib.Locker{
		time.Minute: short, driver.LongestTTL + 1: l, time.Second: l.With(snib.TTL(-1)), time.Hour: new(snib.Locker),
	} {
		if r, err := cron.New(of, d); r != nil || !errors.Is(err, snib.ErrInvalid) {
			t.Errorf("New with minHold %v = %v, %v, want ErrInvalid: no Run would work", d, r, err)
		}
	}
}
