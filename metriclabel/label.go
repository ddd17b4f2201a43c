// Package metriclabel provides the label values under which metrics count the events of a
// snib.Trace: classes of names, bounded in number, and words for why something failed. The
// collector for Prometheus and the spans of OpenTelemetry share it.
package metriclabel

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
	Busy      Reason = iota // somebody else held the lock, or the hold to adopt was over
	Canceled                // the caller cancelled its context
	Timeout                 // the caller's deadline passed
	Invalid                 // an error of the caller
	Closed                  // the Locker was closed
	Regressed               // the fencing token went back
	Backend                 // the store, or the connection to it
	Reasons   int    = iota // the number of reasons
)

// An Outcome is the result of a renewal.
type Outcome int

// The outcomes.
const (
	OK       Outcome = iota
	Refused          // the lease is over
	Failed           // not known; the renewal is retried while there is time
	Outcomes int     = iota
)

// An Op is an operation on a store.
type Op int

// The operations.
const (
	Acquire Op = iota
	Renew
	Release
	Ops int = iota
)

// The strings are stable: alerts and dashboards refer to them.

func (r Reason) String() string {
	return [Reasons]string{"busy", "canceled", "timeout", "invalid", "closed", "regressed", "backend"}[r]
}

func (o Outcome) String() string { return [Outcomes]string{"ok", "refused", "failed"}[o] }

func (o Op) String() string { return [Ops]string{"acquire", "renew", "release"}[o] }

// A Cause is the index of a [snib.Loss].
type Cause int

// Causes is the number of causes. The last one stands for a loss that a
// later version of snib may add.
const Causes = 5

func (c Cause) String() string {
	return [Causes]string{string(snib.LossExpired), string(snib.LossRefused), string(snib.LossMaxHold),
		string(snib.LossClosed), "unknown"}[c]
}

// CauseOf returns the cause for a loss.
func CauseOf(loss snib.Loss) Cause {
	for c := range Cause(Causes) {
		if c.String() == string(loss) {
			return c
		}
	}
	return Causes - 1
}

// ReasonOf returns why an Acquire with the context ctx failed with err.
func ReasonOf(ctx context.Context, err error) Reason {
	switch {
	case errors.Is(err, snib.ErrUnavailable): // even if the caller gave up during the outage
		return Backend
	case errors.Is(err, snib.ErrHeld): // even if the end of MaxWait has ended the context of an AcquireAll
		return Busy
	case ctx != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)): // whatever the cause is
		err = ctx.Err()
	}
	isAny := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
	switch {
	case isAny(snib.ErrLost):
		return Busy
	case isAny(context.Canceled):
		return Canceled
	case isAny(context.DeadlineExceeded):
		return Timeout
	case isAny(snib.ErrInvalid, snib.ErrKind, snib.ErrNested):
		return Invalid
	case isAny(snib.ErrClosed):
		return Closed
	case isAny(snib.ErrRegressed):
		return Regressed
	}
	return Backend
}

// OutcomeOf returns the outcome of a renewal with the error err.
func OutcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, snib.ErrLost):
		return Refused
	}
	return Failed
}
