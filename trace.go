package snib

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

// A Trace is a set of hooks, functions that are called when something happens to a lock. Nil
// hooks are skipped. Hooks may be called from many goroutines at once, and should return soon:
// the operation waits for all of them except Renewed, Lost and Leaked.
//
// Each hold that Acquired reports without Joined ends with one Lost or one Released, reported to
// the Traces of the Locker that acquired it first. Lost is called in its own goroutine, so if a
// hold is lost at once, Lost may come before Acquired.
type Trace struct {
	WaitStarted func(Event) // an Acquire began; one WaitEnded follows. Context
	WaitEnded   func(Event) // Context, Waited, Local, Joined; Err if it failed
	Acquired    func(Event) // Context, Token, Waited, Local, Joined
	Renewed     func(Event) // Token, Took, TTL, Margin, Left; Err if the renewal failed
	Lost        func(Event) // Token, Held, Loss, Err
	Released    func(Event) // Token, Held, Asked, Local, Queued; Err if not confirmed
	Leaked      func(Event) // Token, Held, Stack
	Regressed   func(Event) // Token, Last
}

// An Event is what a [Trace] reports. The comments there list the fields that are set in
// addition to Name and Backend.
type Event struct {
	Context context.Context // passed to Acquire, for its values; it may have ended
	Name    string          // in the store; in a WaitEnded with ErrInvalid, any text
	Backend string          // as in [driver.Info]
	Token   uint64
	Last    uint64        // the greatest token seen before; Token is not greater
	Waited  time.Duration // since the call of Acquire
	Held    time.Duration // since the grant
	Took    time.Duration // duration of the request, which may renew several leases
	Asked   time.Time     // when the release was sent to the store, or zero; see time.Since
	TTL     time.Duration // of the lease
	Margin  time.Duration // validity left when the renewal was answered
	Left    time.Duration // validity after the renewal, or 0 if the hold is over
	Queued  int           // number of waiters for the lock in this process
	Local   bool          // handed over in this process, without a request to the store
	Joined  bool          // the Lock joined an existing hold: see Reentrant and Owner
	Loss    Loss
	Stack   []byte // stack of the Acquire, as returned by debug.Stack
	Err     error
}

// A Loss says in one word why a hold was lost, for metrics and logs.
type Loss string

// The kinds of loss. Their values are stable.
const (
	// LossExpired means that the lease was not renewed in time: the store was out of
	// reach, or the process stood still.
	LossExpired Loss = "expired"

	// LossRefused means that the store ended the lease: it was broken by force,
	// given away, or its session ended.
	LossRefused Loss = "refused"

	// LossMaxHold means that [MaxHold] was over.
	LossMaxHold Loss = "max_hold"

	// LossClosed means that the Locker was closed.
	LossClosed Loss = "closed"
)

// traceHooks are the hooks of all Traces of a Locker, by event.
type traceHooks struct {
	waitStarted, waitEnded, acquired, renewed, lost, released, leaked, regressed hooks
}

// add adds the hooks of t. It copies the lists, which other Lockers may share.
func (l *traceHooks) add(t *Trace) {
	for _, each := range []struct {
		to *hooks
		f  func(Event)
	}{
		{&l.waitStarted, t.WaitStarted}, {&l.waitEnded, t.WaitEnded}, {&l.acquired, t.Acquired}, {&l.renewed, t.Renewed},
		{&l.lost, t.Lost}, {&l.released, t.Released}, {&l.leaked, t.Leaked}, {&l.regressed, t.Regressed},
	} {
		if each.f != nil {
			*each.to = append(slices.Clip(*each.to), each.f)
		}
	}
}

// hooks are the functions for one event.
type hooks []func(Event)

func (fs hooks) call(e *Event) {
	for _, f := range fs {
		f(*e)
	}
}

// logTrace returns the Trace that writes to l.
func logTrace(l *slog.Logger) *Trace {
	if l == nil {
		return nil
	}
	log := func(level slog.Level, msg string, attrs func(Event) []slog.Attr) func(Event) {
		return func(e Event) {
			ctx := e.Context // a handler may find a trace id in it
			if ctx == nil {
				ctx = context.Background()
			}
			if !l.Enabled(ctx, level) {
				return
			}
			all := append([]slog.Attr{slog.String("lock", e.Name), slog.String("backend", e.Backend)}, attrs(e)...)
			if e.Err != nil {
				all = append(all, slog.Any("err", e.Err))
			}
			l.LogAttrs(ctx, level, msg, all...)
		}
	}
	tokenAttr := func(e Event) slog.Attr { return slog.Uint64("fence", e.Token) }
	return &Trace{
		WaitEnded: log(slog.LevelDebug, "wait ended", func(e Event) []slog.Attr {
			return []slog.Attr{slog.Duration("wait", e.Waited)}
		}),
		Acquired: log(slog.LevelDebug, "lock acquired", func(e Event) []slog.Attr {
			return []slog.Attr{tokenAttr(e), slog.Duration("wait", e.Waited), slog.Bool("local", e.Local), slog.Bool("joined", e.Joined)}
		}),
		Renewed: log(slog.LevelDebug, "lock renewed", func(e Event) []slog.Attr {
			return []slog.Attr{tokenAttr(e), slog.Duration("took", e.Took), slog.Duration("margin", e.Margin), slog.Duration("left", e.Left)}
		}),
		Lost: log(slog.LevelError, "lock lost", func(e Event) []slog.Attr {
			return []slog.Attr{tokenAttr(e), slog.Duration("held", e.Held), slog.String("loss", string(e.Loss))}
		}),
		Released: log(slog.LevelDebug, "lock released", func(e Event) []slog.Attr {
			return []slog.Attr{tokenAttr(e), slog.Duration("held", e.Held), slog.Duration("took", releaseDuration(e)), slog.Bool("local", e.Local)}
		}),
		Leaked: log(slog.LevelError, "lock leaked: it was garbage-collected without Release", func(e Event) []slog.Attr {
			return []slog.Attr{tokenAttr(e), slog.Duration("held", e.Held), slog.String("stack", string(e.Stack))}
		}),
		Regressed: log(slog.LevelError, "fencing token went back: the store has lost its memory", func(e Event) []slog.Attr {
			return []slog.Attr{tokenAttr(e), slog.Uint64("last", e.Last)}
		}),
	}
}

// releaseDuration returns how long the release in the store has taken
// so far, or 0 if there was none.
func releaseDuration(e Event) time.Duration {
	if e.Asked.IsZero() {
		return 0
	}
	return time.Since(e.Asked)
}
