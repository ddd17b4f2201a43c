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
			if _, err := t.db.exec(`ROLLBACK`); err != nil { // SQLite's own lock is free then
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
	eventually(t, "stop of the process", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, _ := strings.Cut(string(text), ") ")
		return err == nil && strings.HasPrefix(rest, "T")
	})
	return p, pid
}

// TestStoppedAtWork checks that while another process is stopped in the middle of a write,
// Acquire keeps its deadline, returns ErrUnavailable, and leaves nothing behind.
func TestStoppedAtWork(t *testing.T) {
	for _, role := range []string{"stop in turn", "stop in transaction"} {
		t.Run(strings.ReplaceAll(role, " ", "_"), func(t *testing.T) {
			path := newPath(t)
			d := open(t, path)
			held := acquire(t, d, request("holder"))
			type wait struct {
				cancel context.CancelCauseFunc
				done   chan error
			}
			var waits []wait
			for i := range 3 {
				ctx, cancel := context.WithCancelCause(t.Context())
				w := wait{cancel, make(chan error, 1)}
				req := request(fmt.Sprint("waiter ", i))
				go func() {
					_, err := d.Acquire(ctx, req)
					w.done <- err
				}()
				awaitQueued(t, d, req.ID)
				waits = append(waits, w)
			}
			p, pid := startStopped(t, role, path)

			var late []time.Duration
			for i := range 5 {
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
			gone := errors.New("gone")
			late = nil
			for _, w := range waits {
				began := time.Now()
				w.cancel(gone)
				if err := <-w.done; !errors.Is(err, gone) {
					t.Errorf("a wait that was cancelled = %v, want its cause", err)
				}
				late = append(late, time.Since(began))
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

			p.Signal(syscall.SIGCONT)
			p.Expect("resumed")
			release(t, held)
			eventually(t, "end of all requests", func() bool {
				n := 0
				err := d.List(t.Context(), "", func(driver.Status) bool { n++; return true })
				return err == nil && n == 0
			})
			release(t, acquire(t, d, request("next")))
		})
	}
}
