package snib

import (
	"context"
	"log/slog"
	"time"
)

// A Trace is a set of functions that are called when something happens to a lock; nil ones are not. They may be called
// from many goroutines at once, and should return soon: except for Renewed, Lost and Leaked, the operation waits for them.
type Trace struct {
	WaitStarted func(Event) // an Acquire began; for each there is one WaitEnded
	WaitEnded   func(Event) // Waited; Err if it failed
	Acquired    func(Event) // Token, Waited, Local
	Renewed     func(Event) // Token, Took, Left (0 if the hold is over); Err if the lease could not be renewed
	Lost        func(Event) // Token, Held, Err
	Released    func(Event) // Token, Held, Took, Local; Err if the store did not confirm it
	Leaked      func(Event) // Token, Held, Stack
	Regressed   func(Event) // Token, and Last, which it is not above
}

// An Event is what a [Trace] is told. The comments there say which fields are set beside Name and Backend.
type Event struct {
	Name    string // of the lock, as the store has it
	Backend string // as in [driver.Info]
	Token   uint64
	Last    uint64        // the greatest token seen before
	Waited  time.Duration // since the call of Acquire
	Held    time.Duration // since the grant
	Took    time.Duration // the call to the store
	Left    time.Duration // until the hold ends if no renewal succeeds
	Local   bool          // handed over in this process, without a word to the store
	Stack   []byte        // of the Acquire, as by debug.Stack
	Err     error
}

// tell calls one function of each trace.
func (c *config) tell(which func(*Trace) func(Event), e Event) {
	for _, t := range c.traces {
		if f := which(t); f != nil {
			f(e)
		}
	}
}

// logTrace is the Trace that writes to l.
func logTrace(l *slog.Logger) *Trace {
	if l == nil {
		return nil
	}
	at := func(level slog.Level, msg string, attrs func(Event) []slog.Attr) func(Event) {
		return func(e Event) {
			if !l.Enabled(context.Background(), level) {
				return
			}
			all := append([]slog.Attr{slog.String("lock", e.Name), slog.String("backend", e.Backend)}, attrs(e)...)
			if e.Err != nil {
				all = append(all, slog.Any("err", e.Err))
			}
			l.LogAttrs(context.Background(), level, msg, all...)
		}
	}
	fence := func(e Event) slog.Attr { return slog.Uint64("fence", e.Token) }
	return &Trace{
		WaitEnded: at(slog.LevelDebug, "wait ended", func(e Event) []slog.Attr {
			return []slog.Attr{slog.Duration("wait", e.Waited)}
		}),
		Acquired: at(slog.LevelDebug, "lock acquired", func(e Event) []slog.Attr {
			return []slog.Attr{fence(e), slog.Duration("wait", e.Waited), slog.Bool("local", e.Local)}
		}),
		Renewed: at(slog.LevelDebug, "lock renewed", func(e Event) []slog.Attr {
			return []slog.Attr{fence(e), slog.Duration("took", e.Took), slog.Duration("left", e.Left)}
		}),
		Lost: at(slog.LevelError, "lock lost", func(e Event) []slog.Attr {
			return []slog.Attr{fence(e), slog.Duration("held", e.Held)}
		}),
		Released: at(slog.LevelDebug, "lock released", func(e Event) []slog.Attr {
			return []slog.Attr{fence(e), slog.Duration("held", e.Held), slog.Duration("took", e.Took)}
		}),
		Leaked: at(slog.LevelError, "lock leaked: it was garbage-collected without Release", func(e Event) []slog.Attr {
			return []slog.Attr{fence(e), slog.Duration("held", e.Held), slog.String("stack", string(e.Stack))}
		}),
		Regressed: at(slog.LevelError, "fencing token went back: the store has lost its memory", func(e Event) []slog.Attr {
			return []slog.Attr{fence(e), slog.Uint64("last", e.Last)}
		}),
	}
}
