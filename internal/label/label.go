// Package label has the values of the labels under which metrics count what a snib.Trace is told: classes of names, bounded in
// number, and words for why something failed. The collectors for Prometheus and for OpenTelemetry share it, so that a dashboard
// works with both.
package label

import (
	"context"
	"errors"
	"slices"

	"github.com/sniblock/snib"
)

// A Reason says why an Acquire failed.
type Reason int

// The reasons.
const (
	Busy      Reason = iota // somebody else held the lock
	Canceled                // the caller gave up
	Timeout                 // the caller's deadline came
	Invalid                 // a mistake of the caller's
	Closed                  // the Locker was closed
	Regressed               // the fencing token went back
	Backend                 // the store, or the way to it
	Reasons   int    = iota // how many there are
)

// An Outcome says what a renewal came to.
type Outcome int

// The outcomes.
const (
	OK       Outcome = iota
	Refused          // the lease is over
	Failed           // not known; it is tried again while there is time
	Outcomes int     = iota
)

// An Op is what a store was asked for.
type Op int

// The operations.
const (
	Acquire Op = iota
	Renew
	Release
	Ops int = iota
)

// The words are stable: alerts and dashboards name them.

func (r Reason) String() string {
	return [Reasons]string{"busy", "canceled", "timeout", "invalid", "closed", "regressed", "backend"}[r]
}

func (o Outcome) String() string { return [Outcomes]string{"ok", "refused", "failed"}[o] }

func (o Op) String() string { return [Ops]string{"acquire", "renew", "release"}[o] }

// A Cause is the index of a [snib.Loss].
type Cause int

// Causes is how many there are. The last is for a loss that a later snib may know.
const Causes = 5

func (c Cause) String() string {
	return [Causes]string{string(snib.LossExpired), string(snib.LossRefused), string(snib.LossMaxHold), string(snib.LossClosed), "unknown"}[c]
}

// CauseOf returns the cause that stands for a loss.
func CauseOf(loss snib.Loss) Cause {
	for c := range Cause(Causes) {
		if c.String() == string(loss) {
			return c
		}
	}
	return Causes - 1
}

// ReasonOf says why an Acquire with that context failed.
func ReasonOf(ctx context.Context, err error) Reason {
	if errors.Is(err, snib.ErrUnavailable) { // also if the caller gave up then
		return Backend
	}
	if ctx != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) { // whatever the cause is
		err = ctx.Err()
	}
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
	switch {
	case is(snib.ErrHeld):
		return Busy
	case is(context.Canceled):
		return Canceled
	case is(context.DeadlineExceeded):
		return Timeout
	case is(snib.ErrInvalid, snib.ErrKind, snib.ErrNested):
		return Invalid
	case is(snib.ErrClosed):
		return Closed
	case is(snib.ErrRegressed):
		return Regressed
	}
	return Backend
}

// OutcomeOf says what a renewal with that error came to.
func OutcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, snib.ErrLost):
		return Refused
	}
	return Failed
}
