package fence

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/sniblock/snib/driver"
)

// A Hold is what a guard needs to know of a hold on a lock. A *snib.Lock is one.
type Hold interface {
	Name() string
	Token() uint64
	ID() string
}

// A Mark is what a resource knows of a hold. It is no secret: it identifies the owner by a
// digest, which can't be used to release the lock.
type Mark struct {
	Lock  string `json:"lock"`  // the lock's name
	Token uint64 `json:"token"` // the fencing token, from 1 to 2^63-1
	Owner string `json:"owner"` // the owner's digest: 32 hexadecimal digits
}

// Of returns the mark of a hold. The error matches [driver.ErrInvalid] if the hold has no
// fencing token, as on a backend whose strength is [driver.FencingNone].
func Of(h Hold) (Mark, error) {
	m := Mark{Lock: h.Name(), Token: h.Token(), Owner: driver.Digest(h.ID())}
	return m, m.Check()
}

// Check reports, as an error that matches [driver.ErrInvalid], why a mark can't be that of a
// hold. Guards refuse such marks.
func (m Mark) Check() error {
	switch {
	case m.Token == 0:
		return driver.Invalidf("hold of %q: it has no fencing token, because the backend has none", m.Lock)
	case m.Token > math.MaxInt64:
		return driver.Invalidf("hold of %q: fencing token %d is above 2^63-1, which databases can't store", m.Lock, m.Token)
	case len(m.Owner) != ownerDigits || strings.Trim(m.Owner, "0123456789abcdef") != "":
		return driver.Invalidf("mark of %q: the owner has to be %d hexadecimal digits", m.Lock, ownerDigits)
	}
	return driver.CheckName(m.Lock)
}

const ownerDigits = 32

// After is the rule by which a resource decides: it lets a hold in if its token is greater than
// the last one's, or if it is the last hold itself. Otherwise the error is a *[RefusedError].
// The zero Mark as last stands for a resource that has not let in any hold.
//
// The owner matters: without it, a second hold that got the same token from a broken lock would
// pass for the first one.
func (m Mark) After(last Mark) error {
	if m.Token > last.Token || m.Token == last.Token && m.Owner == last.Owner {
		return nil
	}
	return &RefusedError{Mark: m, Last: last}
}

// The reasons why a resource refuses a hold.
const (
	// ErrStale means that a later hold has been there. All results that were computed under the
	// lock are out of date, and must be thrown away.
	ErrStale driver.Sentinel = "stale fencing token"

	// ErrConflict means that another hold has been there with the same token. That never
	// happens while the lock's store keeps its promises, so it is worth an alarm.
	ErrConflict driver.Sentinel = "two holds have the same fencing token"
)

// A RefusedError says which hold a resource refused, and which one it let in last. It matches
// [ErrStale] or [ErrConflict].
type RefusedError struct {
	Mark Mark
	Last Mark
}

func (e *RefusedError) Error() string {
	if e.isConflict() {
		return fmt.Sprintf("lock %q, %s", e.Mark.Lock, e.reason())
	}
	return fmt.Sprintf("lock %q: %s", e.Mark.Lock, e.reason())
}

// reason returns the text of the error without the name of the lock.
func (e *RefusedError) reason() string {
	if e.isConflict() {
		return fmt.Sprintf("token %d: %v: the store of the lock has broken its promise", e.Mark.Token, ErrConflict)
	}
	return fmt.Sprintf("%v: %d, after %d", ErrStale, e.Mark.Token, e.Last.Token)
}

// Is reports whether target is the reason: [ErrStale] or [ErrConflict].
func (e *RefusedError) Is(target error) bool {
	return target == ErrConflict && e.isConflict() || target == ErrStale && !e.isConflict()
}

func (e *RefusedError) isConflict() bool { return e.Mark.Token == e.Last.Token }

// A Guard lets holds in to a resource by the rule of [Mark.After]. It keeps the last mark of
// each lock at least as durably as the resource itself.
type Guard interface {
	// Do lets a hold in and runs fn, or returns a *[RefusedError]. While fn runs, no later hold
	// is let in. Fn may be nil.
	Do(ctx context.Context, m Mark, fn func(context.Context) error) error
}

// A Handle gives a hold access to a resource that it has claimed.
type Handle struct {
	guard Guard
	mark  Mark
}

// Open claims what g guards: once it has returned, holds with lesser tokens are refused. Read
// the resource only after that.
func Open(ctx context.Context, g Guard, h Hold) (*Handle, error) {
	m, err := Of(h)
	if err != nil {
		return nil, err
	}
	if err = g.Do(ctx, m, nil); err != nil {
		return nil, err
	}
	return &Handle{guard: g, mark: m}, nil
}

// Mark returns the hold's mark.
func (h *Handle) Mark() Mark { return h.mark }

// Do runs fn if the hold is still the last one; while fn runs, no later hold is let in.
// Otherwise the error is a *[RefusedError], and fn has not run.
func (h *Handle) Do(ctx context.Context, fn func(context.Context) error) error {
	return h.guard.Do(ctx, h.mark, fn)
}
