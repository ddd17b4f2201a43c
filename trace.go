package snib

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

// A Trace is a set of functions that are called when something happens to a lock; nil ones are not. They may be called
// from many goroutines at once, and should return soon: except for Renewed, Lost and Leaked, the operation waits for them.
//
// Each hold that Acquired tells of without Joined ends with one Lost or one Released, as told to the Traces of the Locker that
// acquired it first. Lost is told by a goroutine of its own, so that of a hold which is lost at once it may come before Acquired.
type Trace struct {
	WaitStarted func(Event) // an Acquire began; for each there is one WaitEnded. Context
	WaitEnded   func(Event) // Context, Waited, Local, Joined; Err if it failed
	Acquired    func(Event) // Context, Token, Waited, Local, Joined
	Renewed     func(Event) // Token, Took, TTL, Margin, Left (0 if the hold is over); Err if the lease could not be renewed
	Lost        func(Event) // Token, Held, Loss, Err
	Released    func(Event) // Token, Held, Asked, Local, Queued; Err if the store did not confirm it
	Leaked      func(Event) // Token, Held, Stack
	Regressed   func(Event) // Token, and Last, which it is not above
}

// An Event is what a [Trace] is told. The comments there say which fields are set beside Name and Backend.
type Event struct {
	Context context.Context // of the Acquire, for what it carries; it may have ended
	Name    string          // of the lock, as the store has it; of a WaitEnded with ErrInvalid it may be any text
	Backend string          // as in [driver.Info]
	Token   uint64
	Last    uint64        // the greatest token seen before
	Waited  time.Duration // since the call of Acquire
	Held    time.Duration // since the grant
	Took    time.Duration // the call to the store, for all leases that it renewed
	Asked   time.Time     // when the store was asked to free the lock; zero if it was not. time.Since tells how long that took
	TTL     time.Duration // of the lease
	Margin  time.Duration // until the hold would have ended, when the answer to the renewal came
	Left    time.Duration // until the hold ends if no renewal succeeds from now on
	Queued  int           // how many waited for the lock in this process
	Local   bool          // handed over in this process, without a word to the store
	Joined  bool          // one more lock of a hold that there was already: see Reentrant and Owner
	Loss    Loss
	Stack   []byte // of the Acquire, as by debug.Stack
	Err     error
}

// A Loss says why a hold was lost, in a word for metrics and logs.
type Loss string

// The words are stable.
const (
	LossExpired Loss = "expired"  // its lease was not renewed in time: the store was out of reach, or the process stood still
	LossRefused Loss = "refused"  // the store said that it is over: broken by force, given away, or its session ended
	LossMaxHold Loss = "max_hold" // [MaxHold] was over
	LossClosed  Loss = "closed"   // the Locker was closed
)

// listeners are the functions of all Traces of a Locker, by what they are to be told.
type listeners struct {
	waitStarted, waitEnded, acquired, renewed, lost, released, leaked, regressed told
}

// add leaves the lists of others, from which these may be derived, as they are.
func (l *listeners) add(t *Trace) {
	for _, each := range []struct {
		to *told
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

// told are functions of one kind.
type told []func(Event)

func (fs told) tell(e *Event) {
	for _, f := range fs {
		f(*e)
	}
}

// logTrace is the Trace that writes to l.
func logTrace(l *slog.Logger) *Trace {
	if l == nil {
		return nil
	}
	at := func(level slog.Level, msg string, attrs func(Event) []slog.Attr) func(Event) {
		return func(e Event) {
			ctx := e.Context // a handler may find the trace in it that the line belongs to
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
	fence := func(e Event) slog.Attr { return slog.Uint64("fence", e.Token) }
	return &Trace{
		WaitEnded: at(slog.LevelDebug, "wait ended", func(e Event) []slog.Attr {
			return []slog.Attr{slog.Duration("wait", e.Waited)}
		}),
		Acquired: at(slog.LevelDebug, "lock acquired", func(e Event) []slog.Attr {
			return []slog.Attr{fence(e), slog.Duration("wait", e.Waited), slog.Bool("local", e.Local), slog.Bool("joined", e.Joined)}
		}),
		Renewed: at(slog.LevelDebug, "lock renewed", func(e Event) []slog.Attr {
			return []slog.Attr{fence(e), slog.Duration("took", e.Took), slog.Duration("margin", e.Margin), slog.Duration("left", e.Left)}
		}),
		Lost: at(slog.LevelError, "lock lost", func(e Event) []slog.Attr {
			return []slog.Attr{fence(e), slog.Duration("held", e.Held), slog.String("loss", string(e.Loss))}
		}),
		Released: at(slog.LevelDebug, "lock released", func(e Event) []slog.Attr {
			return []slog.Attr{fence(e), slog.Duration("held", e.Held), slog.Duration("took", took(e)), slog.Bool("local", e.Local)}
		}),
		Leaked: at(slog.LevelError, "lock leaked: it was garbage-collected without Release", func(e Event) []slog.Attr {
			return []slog.Attr{fence(e), slog.Duration("held", e.Held), slog.String("stack", string(e.Stack))}
		}),
		Regressed: at(slog.LevelError, "fencing token went back: the store has lost its memory", func(e Event) []slog.Attr {
			return []slog.Attr{fence(e), slog.Uint64("last", e.Last)}
		}),
	}
}

// took is how long the store has been asked by now.
func took(e Event) time.Duration {
	if e.Asked.IsZero() {
		return 0
	}
	return time.Since(e.Asked)
}
