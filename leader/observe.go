package leader

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
)

// A Leader is what [Observe] found: who leads, or that nobody does.
type Leader struct {
	Leads  bool        // false if nobody leads; the other fields are zero then
	Token  uint64      // the fencing token of the term, which no other term has
	Holder snib.Holder // host, process id, and the [snib.Label] that the leader has set
}

// Observe tells who leads under a name: first at once, and then after each change. When a leader
// has resigned or was lost and nobody leads yet, that is a change, too. The locker and the name
// are those of [Run].
//
//	for who, err := range leader.Observe(ctx, locker, "reconciler", time.Second) { … }
//
// Observe asks the store once in every interval, on all backends, so it learns of a change up to
// one interval late, and may miss a term that is shorter. The answer may be out of date: show
// it, or forward requests by it, but never base a decision on it. A leader itself learns that it
// leads, and that it has lost the leadership, from the function and the context of Run, which are
// never late.
//
// While the store does not answer, Observe goes on. It yields the first error of such an outage
// with the zero Leader, because it does not know who leads, and after it what the store answers.
// The sequence ends when ctx is done. It also ends after an error that a retry does not cure:
// [snib.ErrInvalid], [snib.ErrKind], [snib.ErrClosed]. An interval that is not positive is an
// ErrInvalid.
func Observe(ctx context.Context, locker *snib.Locker, name string, interval time.Duration) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if interval <= 0 {
			yield(Leader{}, fmt.Errorf("leader: %w", driver.Invalidf("interval of Observe: %v is not positive", interval)))
			return
		}
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		var last Leader
		known, failing := false, false // whether last is known; whether the last request failed
		for ctx.Err() == nil {
			now, err := observeOnce(ctx, locker, name)
			changed := err == nil && (!known || now != last) || err != nil && (!failing || isPermanent(err))
			if ctx.Err() == nil && changed && !yield(now, err) || isPermanent(err) {
				return
			}
			last, known, failing = now, err == nil, err != nil
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	}
}

// observeOnce asks the store who leads. It bounds the time of the request, because a store that
// hangs would hide its outage.
func observeOnce(ctx context.Context, locker *snib.Locker, name string) (Leader, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, driver.AnswerTimeout, errNoAnswer())
	defer cancel()
	found, ok, err := Current(bounded, locker, name)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = fmt.Errorf("leader: who leads %q: %w", name, errNoAnswer())
		}
		return Leader{}, err
	}
	return Leader{Leads: ok, Token: found.Token, Holder: found.Holder}, nil
}

// errNoAnswer is the error of a request that the store did not answer in time.
func errNoAnswer() error {
	return fmt.Errorf("%w: no answer within %v", snib.ErrUnavailable, driver.AnswerTimeout)
}
