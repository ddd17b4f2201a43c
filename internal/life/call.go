package life

import (
	"context"
	"time"
)

const (
	// Moment is how long a call may go on when the context of its caller is done: mostly it is over within a millisecond,
	// and its outcome is better known than guessed. A call that is cut off costs a connection.
	Moment = 100 * time.Millisecond

	// Longest is how long a call may take. A server that takes longer is as good as gone.
	Longest = 10 * time.Second

	// Withdrawal bounds the calls that take back what a failed request may have left.
	Withdrawal = time.Second
)

// Detached returns a context for calls of the server on behalf of a caller whose context is ctx: it ends a [Moment] later, so
// that what was sent is mostly answered and the connection, which is the user's, lives on; and [Longest] from now at the
// latest.
func Detached(ctx context.Context) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithTimeout(context.WithoutCancel(ctx), Longest)
	stop := context.AfterFunc(ctx, func() {
		late := time.AfterFunc(Moment, cancel)
		context.AfterFunc(inner, func() { late.Stop() })
	})
	return inner, func() { stop(); cancel() }
}
