package snib

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"
)

// A Trace is a set of hooks, functions that are called when something happens to a lock. Nil
// hooks are skipped. Hooks may be called from many goroutines at once, and should return soon:
// the operation waits for all of them except Renewed, Lost, WaitStalled and WaitResumed, which may
// come after WaitEnded.
//
// Each hold that WaitEnded reports, without Err and Joined, ends with one Lost or one Released,
// reported to the Traces of the Locker that acquired it first. Lost is called in its own goroutine,
// so if a hold is lost at once, Lost may come before WaitEnded.
type Trace struct {
	WaitStarted func(WaitStartedEvent) // an Acquire began; one WaitEnded follows
	WaitEnded   func(WaitEndedEvent)
	WaitStalled func(WaitStalledEvent) // one WaitResumed follows
	WaitResumed func(WaitResumedEvent)
	Renewed     func(RenewedEvent)
	Lost        func(LostEvent)
	Released    func(ReleasedEvent)
	Regressed   func(RegressedEvent)
}

// An Event says what is common to the events that a [Trace] reports.
type Event struct {
	Name    string // of the lock in the store; in a WaitEndedEvent with ErrInvalid, any text
	Backend string // as in [Info]
	Token   uint64 // the fencing token of the hold; 0 while there is none
}

// A WaitStartedEvent reports the beginning of an Acquire.
type WaitStartedEvent struct {
	Event
	Context context.Context // passed to Acquire, for its values
}

// A WaitEndedEvent reports the end of an Acquire: if Err is nil, it has the lock.
type WaitEndedEvent struct {
	Event
	Context context.Context // passed to Acquire, for its values; it may have ended
	Waited  time.Duration   // since the call of Acquire
	Local   bool            // handed over in this process, without a request to the store
	Joined  bool            // the Lock joined an existing hold: see Reentrant
	Err     error           // of Acquire
}

// A WaitStalledEvent reports that an Acquire waits for the store and not for a holder: it is out
// of reach or full, or it grants nothing yet, for example after a restart. Of the goroutines of a
// process that wait for one lock, only the one whose turn it is reports that.
type WaitStalledEvent struct {
	Event
	Context context.Context // passed to Acquire, for its values
	Err     error           // why, and for how long at least if that is known; it matches ErrUnavailable
}

// A WaitResumedEvent reports that the store has answered again, or that the Acquire ends.
type WaitResumedEvent struct {
	Event
	Context context.Context // passed to Acquire, for its values; it may have ended
	Stalled time.Duration   // since the WaitStalledEvent
}

// A RenewedEvent reports the answer to the renewal of a lease, or that there was none.
type RenewedEvent struct {
	Event
	Took   time.Duration // duration of the request, which may renew several leases
	TTL    time.Duration // of the lease
	Margin time.Duration // validity of the lease left when the renewal was answered
	Left   time.Duration // validity of the hold after the renewal, or 0 if the hold is over
	Err    error         // why the renewal failed, or nil
}

// A LostEvent reports a hold that ended before its Release.
type LostEvent struct {
	Event
	Held time.Duration // since the grant
	Loss Loss
	Err  error // the cause of the end of the hold's context; it matches [ErrLost]
}

// A ReleasedEvent reports the release of a hold, or that a [Detached] hold has ended here, at the
// end of its TTL, with the Locker or elsewhere. Err is nil then.
type ReleasedEvent struct {
	Event
	Held   time.Duration // since the grant
	Asked  time.Time     // when the release was sent to the store, or zero; see time.Since
	Local  bool          // handed over in this process, without a request to the store
	Queued int           // number of waiters for the lock in this process
	Err    error         // why the store did not confirm the release, or nil
}

// A RegressedEvent reports a fencing token that is not greater than an earlier one.
type RegressedEvent struct {
	Event
	Last uint64 // the greatest token seen before
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

	// LossMaxHold means that [MaxHold] was over, or the TTL of a hold with [NoRenewal].
	LossMaxHold Loss = "max_hold"

	// LossClosed means that the Locker was closed.
	LossClosed Loss = "closed"
)

// traceHooks are the hooks of all Traces of a Locker, by event.
type traceHooks struct {
	waitStarted hooks[WaitStartedEvent]
	waitEnded   hooks[WaitEndedEvent]
	waitStalled hooks[WaitStalledEvent]
	waitResumed hooks[WaitResumedEvent]
	renewed     hooks[RenewedEvent]
	lost        hooks[LostEvent]
	released    hooks[ReleasedEvent]
	regressed   hooks[RegressedEvent]
}

// add adds the hooks of t.
func (l *traceHooks) add(t *Trace) {
	l.waitStarted.add(t.WaitStarted)
	l.waitEnded.add(t.WaitEnded)
	l.waitStalled.add(t.WaitStalled)
	l.waitResumed.add(t.WaitResumed)
	l.renewed.add(t.Renewed)
	l.lost.add(t.Lost)
	l.released.add(t.Released)
	l.regressed.add(t.Regressed)
}

// hooks are the functions for one kind of event.
type hooks[E any] []func(E)

// add adds f unless it is nil. It copies the list, which other Lockers may share.
func (fs *hooks[E]) add(f func(E)) {
	if f != nil {
		*fs = append(slices.Clip(*fs), f)
	}
}

// call calls all functions with *e. Events are large, and so are not copied without need.
func (fs hooks[E]) call(e *E) {
	for _, f := range fs {
		f(*e)
	}
}

// logTrace returns the Trace that writes to l.
func logTrace(l *slog.Logger) *Trace {
	if l == nil {
		return nil
	}
	g := eventLogger{l}
	ctx := context.Background()
	return &Trace{
		WaitEnded: func(e WaitEndedEvent) {
			if e.Err != nil {
				g.log(e.Context, failureLevel(e), "acquire failed", e.Event, e.Err, slog.Duration("wait", e.Waited))
				return
			}
			g.log(e.Context, slog.LevelDebug, "lock acquired", e.Event, nil,
				tokenAttr(e.Event), slog.Duration("wait", e.Waited), slog.Bool("local", e.Local), slog.Bool("joined", e.Joined))
		},
		WaitStalled: func(e WaitStalledEvent) {
			g.log(e.Context, slog.LevelWarn, "wait stalled", e.Event, e.Err)
		},
		WaitResumed: func(e WaitResumedEvent) {
			g.log(e.Context, slog.LevelInfo, "wait resumed", e.Event, nil, slog.Duration("stalled", e.Stalled))
		},
		Renewed: func(e RenewedEvent) {
			level, message := slog.LevelDebug, "lock renewed"
			if e.Err != nil {
				message = "renewal failed"
				if !errors.Is(e.Err, ErrLost) { // a loss has a line of its own
					level = slog.LevelWarn
				}
			}
			g.log(ctx, level, message, e.Event, e.Err,
				tokenAttr(e.Event), slog.Duration("took", e.Took), slog.Duration("margin", e.Margin), slog.Duration("left", e.Left))
		},
		Lost: func(e LostEvent) {
			g.log(ctx, slog.LevelError, "lock lost", e.Event, e.Err, tokenAttr(e.Event), slog.Duration("held", e.Held),
				slog.String("loss", string(e.Loss)))
		},
		Released: func(e ReleasedEvent) {
			level := slog.LevelDebug
			if e.Err != nil { // even if it is ErrLost: the hold had ended, and no LostEvent says so
				level = slog.LevelWarn
			}
			var took time.Duration // so far; there may have been no request
			if !e.Asked.IsZero() {
				took = time.Since(e.Asked)
			}
			g.log(ctx, level, "lock released", e.Event, e.Err,
				tokenAttr(e.Event), slog.Duration("held", e.Held), slog.Duration("took", took), slog.Bool("local", e.Local))
		},
		Regressed: func(e RegressedEvent) {
			g.log(ctx, slog.LevelError, "fencing token went back: the store has lost its memory", e.Event, nil,
				tokenAttr(e.Event), slog.Uint64("last", e.Last))
		},
	}
}

// failureLevel returns the level of the line for an Acquire that failed. It is a warning if the
// store has failed, and not if somebody holds the lock, a hold to adopt is over, or the caller has
// given up or made a mistake.
func failureLevel(e WaitEndedEvent) slog.Level {
	if errors.Is(e.Err, ErrUnavailable) { // even if the caller has given up meanwhile
		return slog.LevelWarn
	}
	if e.Context.Err() != nil && errors.Is(e.Err, context.Cause(e.Context)) {
		return slog.LevelDebug
	}
	for _, usual := range []error{ErrHeld, ErrLost, ErrNested, ErrInvalid, ErrKind, ErrClosed} {
		if errors.Is(e.Err, usual) {
			return slog.LevelDebug
		}
	}
	return slog.LevelWarn
}

func tokenAttr(e Event) slog.Attr { return slog.Uint64("fence", e.Token) }

// An eventLogger writes events to a log.
type eventLogger struct{ *slog.Logger }

// log writes an event. A handler may find a trace id in ctx.
func (g eventLogger) log(ctx context.Context, level slog.Level, msg string, e Event, err error, attrs ...slog.Attr) {
	if !g.Enabled(ctx, level) {
		return
	}
	all := append([]slog.Attr{slog.String("lock", e.Name), slog.String("backend", e.Backend)}, attrs...)
	if err != nil {
		all = append(all, slog.Any("err", err))
	}
	g.LogAttrs(ctx, level, msg, all...)
}
