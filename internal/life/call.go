package life

import (
	"context"
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
)

const (
	// Moment is how long a call may go on when the context of its caller is done: mostly it is
	// over within a millisecond, and its outcome is better known than guessed. A call that is cut
	// off costs a connection. The rest of CancelTimeout is for what the caller does then.
	Moment = driver.CancelTimeout / 2

	// Longest is how long a call may take. A server that takes longer is as good as gone.
	Longest = driver.AnswerTimeout

	// Withdrawal bounds the calls that take back what a failed request may have left.
	Withdrawal = time.Second
)

// Detached returns a context for calls of the server on behalf of a caller whose context is ctx:
// it ends a [Moment] later, so that what was sent is mostly answered and the connection, which is
// the user's, lives on; and [Longest] from now at the latest. Its cause then matches
// [driver.ErrUnavailable], because the server has not answered, and the cause of ctx if that is
// done.
func Detached(ctx context.Context) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	limit := time.AfterFunc(Longest, func() {
		cancel(fmt.Errorf("%w: no answer within %v", driver.ErrUnavailable, Longest))
	})
	stop := context.AfterFunc(ctx, func() {
		late := time.AfterFunc(Moment, func() { cancel(unanswered(ctx)) })
		context.AfterFunc(inner, func() { late.Stop() })
	})
	return inner, func() { stop(); limit.Stop(); cancel(nil) }
}

// unanswered is the error of a call that was not answered before the context of its caller was
// done.
func unanswered(ctx context.Context) error {
	return fmt.Errorf("%w: no answer: %w", driver.ErrUnavailable, context.Cause(ctx))
}
