package snib

// This file has holds that outlive their process.

import (
	"context"
	"errors"
	"fmt"

	"github.com/sniblock/snib/driver"
)

// Detached makes a hold that outlives its process: only its [TTL], Release, or [Locker.Break] ends
// it. It is not renewed, as with [NoRenewal]. Use it for a lock that a person keeps for a while,
// such as a document that is checked out, and for work that another process continues. Keep
// [Lock.Owner] in a safe place. With it, any process can call [Locker.Adopt], to release the lock
// or to keep it longer.
//
// The Lock may be forgotten without Release. Its context ends, as lost, at the end of the TTL or
// when the Locker is closed, while the lock stays taken in the store. The process may learn only
// then that another process has released the lock.
//
// Where leases end with a session, Detached is an [ErrInvalid]: those backends free the locks of a
// process that has ended.
func Detached() Option {
	return newOption(func(c *config) { c.detached, c.noRenewal = true, true })
}

// Adopt takes over the hold that owner has on a lock, as [Lock.Owner] returned it, maybe in
// another process. The hold keeps its owner and its fencing token, and lasts for another [TTL] of
// this Locker. Then this Locker renews it, or with [Detached] does not. To end the hold, release
// the returned Lock. To extend a detached hold, adopt it with a Locker that is Detached.
//
// Adopt does not wait, and never acquires a lock that is free. Its error matches:
//
//   - [ErrLost] if owner does not hold the lock
//   - [ErrKind] if the hold is of another kind than this Locker acquires: see [Shared] and [Slots]
//   - [ErrInvalid] if name or owner can't be used
//   - [ErrUnavailable] if the store does not answer; the hold may have ended
//   - or it is one of the other errors of [Locker.TryAcquire]
//
// The former holder is not asked, and does not learn that it has lost control, so its work must be
// over. If this process has a hold of owner already that is not Detached, Adopt joins it as
// [Owner] describes, without extending it. The end of ctx ends Adopt before the hold is taken
// over, or within 5 seconds.
func (l *Locker) Adopt(ctx context.Context, name, owner string) (*Lock, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	adopter := l.With(Owner(owner))
	token, err := adopter.tokenOf(ctx, name, owner)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, adopter.wrapError("adopt", l.conf.prefix+name, context.Cause(ctx))
	}
	// If the end of ctx ended this request, the driver would withdraw it, and free the lock.
	lock, err := adopter.TryAcquire(context.WithoutCancel(ctx), name)
	switch {
	case errors.Is(err, ErrHeld): // somebody else got it since
		return nil, adopter.wrapError("adopt", l.conf.prefix+name, errNotOwner)
	case err != nil:
		return nil, err
	case lock.Token() != token: // it was free: this is a new hold
		return nil, errors.Join(adopter.wrapError("adopt", lock.Name(), errNotOwner), lock.Release())
	}
	return lock, nil
}

var errNotOwner = fmt.Errorf("%w: this owner does not hold it", ErrLost)

// tokenOf returns the token of the hold that owner has, if l can adopt that hold.
func (l *Locker) tokenOf(ctx context.Context, name, owner string) (token uint64, err error) {
	if err := l.check(); err != nil {
		return 0, err
	}
	if l.core.info.Fencing == driver.FencingNone {
		return 0, l.wrapError("adopt", name, driver.Invalidf("use of Adopt: this backend has no tokens, by which it could tell holds apart"))
	}
	err = l.inspect(ctx, "adopt", l.conf.prefix+name, func(name string) error {
		if err := driver.CheckName(name); err != nil {
			return err
		}
		st, err := l.statusInTime(ctx, name)
		if err != nil {
			return err
		}
		for _, h := range st.Holders {
			if h.Owner == owner {
				token = h.Token
				return l.conf.checkKind(st)
			}
		}
		return errNotOwner
	})
	return token, err
}

// checkKind returns ErrKind if st is of another kind of lock than c acquires.
func (c *config) checkKind(st Status) error {
	if st.Shared == c.shared && st.Slots == c.slots {
		return nil
	}
	return fmt.Errorf("%w: held with Shared %t and %d slots, and asked for with Shared %t and %d slots",
		ErrKind, st.Shared, st.Slots, c.shared, c.slots)
}
