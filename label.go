package snib

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/sniblock/snib/driver"
)

// SetLabel changes the text that [Label] has set, and that is shown to people who inspect the
// lock: how far the work has come, or for whom it is done. All Locks of the hold share the text.
// When the hold ends, its lease is not handed over within this process, because the next hold may
// be for other work.
//
// The error matches:
//
//   - [ErrUnavailable] if the store does not answer within 5 seconds, and also in other outages
//   - [ErrLost] if the hold is lost, which SetLabel may be the first to learn
//   - [ErrReleased] after Release
//   - [context.Cause] of ctx if its end ended the request
//   - [errors.ErrUnsupported] if the driver can't change the text, and with [Detached]: the hold
//     may be that of another process by now
//
// After ErrUnavailable, and after the end of ctx, the store may have either text.
func (l *Lock) SetLabel(ctx context.Context, text string) error {
	h := l.mustHold()
	err := l.setLabel(ctx, text)
	if err != nil {
		return h.locker.wrapError("set label", h.lease.name, err)
	}
	return nil
}

func (l *Lock) setLabel(ctx context.Context, text string) error {
	if ctx == nil {
		return errNilContext()
	}
	if l.hold.locker.conf.detached {
		return fmt.Errorf("%w with Detached: another process may have adopted the hold", errors.ErrUnsupported)
	}
	if l.released.Load() {
		return ErrReleased
	}
	c, le := l.hold.locker.core, l.hold.lease
	c.mu.Lock()
	err := l.hold.endCause()
	le.labeled = true
	c.mu.Unlock()
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, driver.AnswerTimeout)
	defer cancel()
	holder := l.hold.locker.holder()
	holder.Label = text
	err = callerError(ctx, le.granted.SetHolder(bounded, holder))
	if errors.Is(err, ErrLost) && ctx.Err() == nil { // the cause of ctx may be the loss of another hold
		c.handleLost(le, err)
		c.mu.Lock()
		defer c.mu.Unlock()
		return cmp.Or(l.hold.cause, err) // ErrReleased if Release came in between
	}
	return err
}
