package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/cmd/snib/internal/child"
	"github.com/sniblock/snib/driver"
)

// patience is how long we wait before we say so, and how often we then say more.
const patience = time.Second

// acquire takes the lock, tells who is in the way, and gives up on a signal.
func (r *run) acquire(locker *snib.Locker, s *backend.Store) (*snib.Lock, error) {
	type result struct {
		lock *snib.Lock
		err  error
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan result, 1)
	go func() {
		lock, err := locker.Acquire(ctx, r.name)
		done <- result{lock, err}
	}()
	line := &waitLine{run: r, store: s}
	tick := time.NewTicker(patience)
	defer tick.Stop()
	var stop syscall.Signal
	for {
		select {
		case got := <-done:
			line.clear()
			if stop == 0 {
				return got.lock, got.err
			}
			if got.err == nil { // granted while we were giving up
				_ = r.release(got.lock)
			}
			ending{die: stop == syscall.SIGINT && onTerminal()}.raise()
			return nil, silent(exitSignal + int(stop))
		case sig := <-r.sigs:
			if ends(sig) && stop == 0 {
				stop = sig.(syscall.Signal)
				cancel()
			}
		case <-tick.C:
			line.draw()
		}
	}
}

// untilSignalled calls acquire and cancels it when we are asked to end. What it gets nevertheless is given back.
func untilSignalled(
	ctx context.Context, acquire func(context.Context) (driver.Lease, error),
) (driver.Lease, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sigs := make(chan os.Signal, 1)
	catch(sigs, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(sigs)
	go func() {
		select {
		case s := <-sigs:
			cancel(silent(exitSignal + int(s.(syscall.Signal))))
		case <-ctx.Done():
		}
	}()
	lease, err := acquire(ctx)
	if cause := context.Cause(ctx); err == nil && cause != nil {
		_ = lease.Release(context.WithoutCancel(ctx))
		return nil, cause
	}
	return lease, err
}

// ends reports whether a signal asks a program to end.
func ends(s os.Signal) bool {
	return s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGHUP || s == syscall.SIGQUIT
}

// onTerminal reports whether a person watches standard error.
func onTerminal() bool { return child.IsTerminal(syscall.Stderr) }

// A waitLine tells a person for whom we wait: one line, drawn anew each second. Without a terminal, or one that can't
// redraw, it is printed once and only with --verbose.
type waitLine struct {
	run   *run
	store *backend.Store
	drawn bool
	quiet bool // nothing more is to be said
}

func (w *waitLine) draw() {
	redraws := onTerminal() && os.Getenv("TERM") != "dumb"
	if w.quiet || w.run.quiet || !onTerminal() && !w.run.verbose {
		return
	}
	text := "snib: " + w.text()
	if !redraws {
		w.quiet = true
		fmt.Fprintln(w.run.err, text)
		return
	}
	if width := child.Width(syscall.Stderr); width > 1 {
		text = cut(text, width-1) // a line that wraps can't be drawn over
	}
	fmt.Fprintf(w.run.err, "\r\x1b[K%s", text)
	w.drawn = true
}

// clear takes the line away.
func (w *waitLine) clear() {
	if w.drawn {
		fmt.Fprint(w.run.err, "\r\x1b[K")
	}
}

func (w *waitLine) text() string {
	text := "waiting for " + printable(w.run.name)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	st, err := status(ctx, w.store, w.run.name)
	if err != nil {
		return text + ": " + message(err) // perhaps it passes; else the wait itself will end with it
	}
	if ahead := w.ahead(st); ahead > 0 {
		text += fmt.Sprintf(", %d ahead", ahead)
	}
	if len(st.Holders) == 0 {
		switch left, err := w.store.Grace(ctx, w.run.request()); {
		case err != nil:
			text += ": " + message(err)
		case left > 0:
			text += ": " + withheld(left)
		}
		return text
	}
	h := st.Holders[0]
	text += ": " + heldBy(h)
	if n := len(st.Holders) - 1; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text + ", " + strings.TrimPrefix(prospect(h), "its ")
}

// withheld says why a lock is not granted that nobody is seen to hold.
func withheld(left time.Duration) string {
	return fmt.Sprintf("the store restarted or failed over, and grants nothing for %s", short(left))
}

// ahead counts the waiters that are served before us.
func (w *waitLine) ahead(st driver.Status) int {
	for i, other := range st.Waiters {
		if other.Owner == w.run.owner {
			return i
		}
	}
	return 0
}
