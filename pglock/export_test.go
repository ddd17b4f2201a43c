package pglock

import (
	"context"

	"github.com/sniblock/snib/driver"
)

// Forget unlocks the advisory lock of a lease without the session's knowledge.
func Forget(one driver.Lease) {
	l := one.(*lease)
	l.d.session.link.do(l.d.life.Context(), func(ctx context.Context) error { return l.d.session.link.unlock(ctx, l) })
}
