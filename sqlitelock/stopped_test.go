//go:build linux

package sqlitelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// stopAtWork stops its own process while it writes: its role is "stop in turn" or
// "stop in transaction".
func (j job) stopAtWork(ctx context.Context, d *Driver) error {
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	stop := func() error {
		livetest.Say("stopping", os.Getpid())
		if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
			return err
		}
		<-goesOn // the signal may take effect a little later
		return nil
	}
	err := d.do(ctx, &op{run: func(t *tx) error {
		if j.Role == "stop in turn" {
			if err := t.db.exec(`ROLLBACK`); err != nil { // SQLite's own lock is free then
				return err
			}
			defer t.db.exec(`BEGIN IMMEDIATE`)
		}
		return stop()
	}})
	livetest.Say("resumed")
	<-ctx.Done()
	return err
}

// startStopped starts a process that stops itself while it has the writer lock, and
// returns it with its process id.
func startStopped(t *testing.T, role, path string) (*livetest.Child, int) {
	t.Helper()
	p := start(t, role, path, driver.Request{})
	pid := int(p.Number("stopping"))
	livetest.Await(t, "stop of the process", func() error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if _, rest, _ := strings.Cut(string(text), ") "); !strings.HasPrefix(rest, "T") {
			return fmt.Errorf("it is %q, %w", text, err)
		}
		return nil
	})
	return p, pid
}

// TestStoppedAtWork checks that while another process is stopped in the middle of a write,
// Acquire keeps its deadline, returns ErrUnavailable, and leaves nothing behind; and that other
// calls without a deadline return ErrUnavailable, too.
func TestStoppedAtWork(t *testing.T) {
	for _, role := range []string{"stop in turn", "stop in transaction"} {
		t.Run(strings.ReplaceAll(role, " ", "_"), func(t *testing.T) {
			path := newPath(t)
			d := open(t, path)
			held := acquire(t, d, request("holder"))
			var waits []*livetest.Waiter
			const most = 15 // a machine may be late more often than not
			for i := range most {
				waits = append(waits, livetest.Waiting(t, d, request(fmt.Sprint("waiter ", i))))
			}
			p, pid := startStopped(t, role, path)

			var late []time.Duration
			for i := 0; i < 5 || i < most && slices.Min(late) > driver.CancelTimeout; i++ {
				ctx, cancel := context.WithTimeout(t.Context(), 4*slowAnswer)
				req := request(fmt.Sprint("late ", i))
				req.Name = "another name"
				_, err := d.Acquire(ctx, req)
				end, _ := ctx.Deadline()
				late = append(late, time.Since(end))
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, driver.ErrUnavailable) ||
					errors.Is(err, driver.ErrHeld) {
					t.Errorf("Acquire = %v, want ErrUnavailable and DeadlineExceeded", err)
				}
			}
			if least := slices.Min(late); least > driver.CancelTimeout {
				t.Errorf("Acquire returned %v after its deadlines, want %v at most", late, driver.CancelTimeout)
			}
			late = nil
			for _, w := range waits {
				began := time.Now()
				w.Cancel()
				if err := w.End(t); !errors.Is(err, context.Canceled) {
					t.Errorf("a wait that was cancelled = %v, want its cause", err)
				}
				late = append(late, w.At.Sub(began))
			}
			if least := slices.Min(late); least > driver.CancelTimeout {
				t.Errorf("waits returned %v after they were cancelled, want %v at most", late, driver.CancelTimeout)
			}

			req := request("impatient")
			req.Name, req.NoWait = "another name", true
			_, err := d.Acquire(t.Context(), req)
			if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrHeld) {
				t.Errorf("Acquire with NoWait = %v, want ErrUnavailable", err)
			}
			if !strings.Contains(err.Error(), fmt.Sprintf("pid %d (", pid)) {
				t.Errorf("Acquire with NoWait = %v, want pid %d", err, pid)
			}

			wantAllUnavailable(t, map[string]func(context.Context) error{
				"Break":     func(ctx context.Context) error { return d.Break(ctx, "a name", "id") },
				"Withdraw":  func(ctx context.Context) error { return d.Withdraw(ctx, "a name", "id") },
				"SetHolder": func(ctx context.Context) error { return held.SetHolder(ctx, driver.Holder{}) },
				"Inherit": func(ctx context.Context) error {
					_, err := d.Inherit(ctx, request("holder").Name, held.ID())
					return err
				},
				"Renew": func(ctx context.Context) error { return d.Renew(ctx, []driver.Lease{held})[0].Err },
			})

			p.Signal(syscall.SIGCONT)
			p.Expect("resumed")
			release(t, held)
			livetest.Await(t, "end of all requests", func() error {
				var left []driver.Status
				err := d.List(t.Context(), "", func(st driver.Status) bool { left = append(left, st); return true })
				if len(left) > 0 {
					err = fmt.Errorf("there are %+v", left)
				}
				return err
			})
			release(t, acquire(t, d, request("next")))
		})
	}
}

// wantAllUnavailable makes calls at the same time, without a deadline. Each must return
// ErrUnavailable by itself.
func wantAllUnavailable(t *testing.T, calls map[string]func(context.Context) error) {
	t.Helper()
	answers := make(chan error, len(calls))
	for what, call := range calls {
		go func() { answers <- fmt.Errorf("%s = %w", what, call(context.Background())) }()
	}
	for range calls {
		select {
		case err := <-answers:
			if !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("%v, want ErrUnavailable", err)
			}
		case <-time.After(livetest.Patience):
			t.Fatalf("a call without a deadline does not return")
		}
	}
}
