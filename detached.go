package snib

// This file has holds that outlive their process.

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// Detached makes a hold that outlives its process: only its [TTL], Release, or [Locker.Break]
// ends it. It is not renewed, as with [NoRenewal]. Use it for a lock that a person keeps for a
// while, such as a document that is checked out, and for work that another process continues.
// Keep [Lock.ID] in a safe place. With it, any process can call [Locker.Adopt], to release the
// lock or to keep it longer. Its label stays that of [Label]: [Lock.SetLabel] fails.
//
// The Lock may be forgotten without Release. Its context ends, as lost, at the end of the TTL or
// when the Locker is closed, while the lock stays taken in the store; a Trace is told that it was
// released. The process may learn only then that another process has released the lock. At the end
// of the TTL, which is a hundredth of it earlier here than in the store, Release sends nothing any
// more: another process may have adopted the hold.
//
// The TTL takes the place of [MaxHold]: with that, Detached is an [ErrInvalid].
//
// Where leases end with a session, Detached is an [ErrInvalid]: those backends free the locks of a
// process that has ended.
func Detached() Option {
	return newOption(func(c *config) { c.detached, c.noRenewal = true, true })
}

// Adopt takes over the [Detached] hold with the given id, which [Lock.ID] has returned, maybe in
// another process. The hold keeps its id and its fencing token, and lasts for another [TTL] of this
// Locker at least. Then this Locker renews it, or with Detached does not. To end the hold, release
// the returned Lock. To extend a detached hold, adopt it with a Locker that is Detached; the store
// goes on to show its first holder.
//
// Adopt does not wait, and acquires nothing: if it fails, the lock and its holder are as they were,
// but for the end of the lease. Only after ErrUnavailable, the end of ctx, or Close, the store may
// show this process as the holder; then nobody can adopt the hold any more, but [Locker.Break] ends
// it. The error matches:
//
//   - [ErrLost] if there is no such hold any more
//   - [ErrInvalid] if the hold is not detached, because its process renews it; if the store does
//     not show its id to us; or if name or id can't be used
//   - [ErrKind] if the hold is of another kind than this Locker acquires: see [Shared] and [Slots]
//   - [ErrUnavailable] if the store does not answer
//   - or it is one of the other errors of [Locker.TryAcquire]
//
// The former holder is not asked, so its work must be over. One process at a time should adopt a
// hold: two that do so at the same moment share it.
func (l *Locker) Adopt(ctx context.Context, name, id string) (*Lock, error) {
	if err := l.Err(); err != nil {
		return nil, err
	}
	name = l.conf.prefix + name
	if ctx == nil {
		return nil, l.wrapError("adopt", name, errNilContext())
	}
	began := l.begin(ctx, name)
	h, err := l.adoptHold(ctx, name, id)
	return l.complete(ctx, ctx, "adopt", name, began, h, holdOrigin{}, err)
}

// adoptHold makes the detached hold with that id a hold of this process.
func (l *Locker) adoptHold(ctx context.Context, name, id string) (*hold, error) {
	switch {
	case id == "" || len(id) > driver.MaxName:
		return nil, driver.Invalidf("id: it has %d bytes; 1 to %d are allowed", len(id), driver.MaxName)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	st, err := l.statusInTime(ctx, name)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(st.Holders, func(h Holding) bool { return h.ID == id })
	switch {
	case at < 0:
		return nil, l.unseen(ctx, name, id)
	case st.Holders[at].Holder.Kind == driver.KindKept: // it was released
		return nil, errNoSuchHold
	case st.Holders[at].Holder.Kind != driver.KindDetached:
		return nil, driver.Invalidf("hold: it is not detached: its process renews it; see Detached")
	}
	if err := l.conf.checkKind(st); err != nil {
		return nil, err
	}
	return l.takeOver(ctx, name, id, st.Holders[at].Token)
}

// unseen says why Status does not show the hold with that id. It is over, or the store shows no
// ids, as a lock service to those who are no administrators. A renewal tells.
func (l *Locker) unseen(ctx context.Context, name, id string) error {
	bounded, cancel := context.WithTimeout(ctx, driver.AnswerTimeout)
	defer cancel()
	d := l.core.driver
	switch _, err := renewOne(bounded, d, d.Lease(name, id, l.conf.ttl)); {
	case err == nil:
		return driver.Invalidf(
			"hold: the store does not show its id, so nobody knows whether it is detached; ask with the rights of an " +
				"administrator")
	case driverkit.SaysLost(bounded, err), errors.Is(err, errors.ErrUnsupported):
		return errNoSuchHold
	default:
		return callerError(ctx, err)
	}
}

// takeOver extends the lease with that id, and adds it to the keeper. Without Detached, the store
// then knows this process as its holder. No request makes the hold Detached again: it could arrive
// when another process has adopted the hold.
func (l *Locker) takeOver(ctx context.Context, name, id string, token uint64) (*hold, error) {
	c, le := l.core, l.newLease(name, id)
	le.granted = c.driver.Lease(name, id, le.ttl)
	bounded, cancel := context.WithTimeout(ctx, driver.AnswerTimeout)
	defer cancel()
	start, err := renewOne(bounded, c.driver, le.granted)
	if err != nil {
		return nil, callerError(ctx, err)
	}
	le.nextToken, le.endToken = token+1, token+1
	le.ttl -= l.conf.lockDelay
	le.extend(start)
	if l.conf.detached || le.deadline.Reached(driver.Now()) { // addHold says if it is over
		return l.addHold(le)
	}
	if err := le.granted.SetHolder(bounded, l.holder()); err != nil {
		return nil, callerError(ctx, err)
	}
	if le.deadline.Reached(driver.Now()) { // nobody else can adopt it now, and the store may keep it for long
		if start, err = renewOne(bounded, c.driver, le.granted); err != nil {
			return nil, callerError(ctx, err)
		}
		le.extend(start)
	}
	return l.addHold(le)
}

// renewOne extends a lease, from the start that it returns.
func renewOne(ctx context.Context, d driver.Driver, le driver.Lease) (start driver.Instant, err error) {
	answers := d.Renew(ctx, []driver.Lease{le})
	if len(answers) != 1 {
		return start, fmt.Errorf("the driver gave %d answers for one lease", len(answers))
	}
	return answers[0].Start, checkRenewal(answers[0])
}

var errNoSuchHold = fmt.Errorf("%w: there is no hold with this id", ErrLost)

// checkKind returns ErrKind if st is of another kind of lock than c acquires.
func (c *config) checkKind(st Status) error {
	if st.Shared == c.shared && (st.Slots > 0) == (c.slots > 0) {
		return nil
	}
	return fmt.Errorf("%w: held with Shared %t and %d slots, and asked for with Shared %t and %d slots",
		ErrKind, st.Shared, st.Slots, c.shared, c.slots)
}
