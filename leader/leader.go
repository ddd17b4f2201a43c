package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
)

const (
	defaultPause = time.Second
	maxPause     = 24 * time.Hour

	// maxDoublings bounds the pause after failed campaigns to 2^4 times [Pause].
	maxDoublings = 4
)

// Run campaigns for the leadership under a name, and calls fn when this process leads. It does so
// again and again until ctx is done. The name is that of a lock of locker, whose options apply:
// its TTL is how long nobody leads after a leader has died. The locker must use neither
// [snib.Shared] nor [snib.Slots], or there are as many leaders as there can be holds.
//
// While fn runs, this process leads. The context passed to fn ends with ctx, or before the store
// can make another process the leader; [context.Cause] says why, as in [snib.Locker.Do]. While fn
// winds down after the end of ctx, this process still leads.
//
//   - When fn returns nil, Run resigns and campaigns again, after a pause in
//     which others get their turn.
//   - When fn returns an error, Run resigns and returns the error. An fn that wants to continue in
//     spite of an error returns nil.
//   - When the leadership was lost by the time that fn returned, Run campaigns again, after a
//     pause, whatever fn returned.
//   - When fn panics, or ends its goroutine, Run resigns on the way out.
//
// While the store is out of reach, Run retries, with pauses that grow to 16 times [Pause], and
// reports each error to [OnError].
//
// Run returns what fn returned, or the cause of ctx once ctx is done. It also returns on
// errors that a retry does not cure: [snib.ErrInvalid], [snib.ErrKind],
// [snib.ErrNested], [snib.ErrClosed].
func Run(ctx context.Context, locker *snib.Locker, name string, fn func(ctx context.Context, lock *snib.Lock) error,
	opts ...Option) error {
	c := candidate{locker: locker, name: name, fn: fn, pause: defaultPause, onError: func(error) {}}
	if err := c.configure(opts); err != nil {
		return err
	}
	failed := 0 // campaigns in a row that failed because of the store
	for {
		outcome, err := c.campaign(ctx)
		switch {
		case outcome == finished:
			return err
		case ctx.Err() != nil:
			return cmp.Or(err, context.Cause(ctx))
		case outcome == notElected && err != nil:
			failed++
		default:
			failed = 0
		}
		if err != nil {
			c.onError(err)
		}
		if !c.wait(ctx, failed) {
			return context.Cause(ctx)
		}
	}
}

// An Option changes how [Run] campaigns.
type Option struct{ set func(*candidate) error }

// Pause sets the mean pause between the end of a term, or of a failed campaign, and the next
// campaign. The default is one second. Each pause is random, from half to one and a half times d.
// A d that is not positive, or longer than a day, is an [snib.ErrInvalid].
func Pause(d time.Duration) Option {
	return Option{func(c *candidate) error {
		if d <= 0 || d > maxPause {
			return fmt.Errorf("leader: %w", driver.Invalidf("Pause: %v is not within 1ns and %v", d, maxPause))
		}
		c.pause = d
		return nil
	}}
}

// OnError sets a function that is called with each error after which [Run] continues: errors of a
// store that is out of reach, and errors of terms that ended because the leadership was lost,
// which match [snib.ErrLost]. Run waits for f.
func OnError(f func(error)) Option {
	return Option{func(c *candidate) error {
		if f == nil {
			return fmt.Errorf("leader: %w", driver.Invalidf("OnError: the function is nil"))
		}
		c.onError = f
		return nil
	}}
}

// A candidate is one call of Run.
type candidate struct {
	locker  *snib.Locker
	name    string
	fn      func(context.Context, *snib.Lock) error
	pause   time.Duration
	onError func(error)
}

func (c *candidate) configure(opts []Option) error {
	if c.locker == nil || c.fn == nil {
		return fmt.Errorf("leader: %w", driver.Invalidf("call of Run: it needs a Locker and a function"))
	}
	for _, o := range opts {
		if o.set == nil {
			return fmt.Errorf("leader: %w", driver.Invalidf("option: the zero Option"))
		}
		if err := o.set(c); err != nil {
			return err
		}
	}
	return nil
}

// An outcome is the outcome of a campaign.
type outcome int

const (
	// finished means that Run must return the error.
	finished outcome = iota

	// notElected means that this process did not lead. The error is the store's, or nil if another
	// process leads.
	notElected

	// served means that this process led, and may campaign again. The error, if any, says how it
	// lost the leadership.
	served
)

// campaign campaigns once, and leads if that succeeds.
func (c *candidate) campaign(ctx context.Context) (outcome, error) {
	var led, lost bool
	var failure error // returned by fn
	err := c.locker.Do(ctx, c.name, func(term context.Context, lock *snib.Lock) error {
		led = true
		failure = c.fn(term, lock)
		// Compare clocks: after the process was paused, fn may return
		// before the loss was reported.
		lost = lock.Validity() <= 0 && !errors.Is(context.Cause(term), snib.ErrReleased)
		return failure
	})
	switch {
	case led && (lost || failure == nil || errors.Is(err, snib.ErrLost) && !errors.Is(failure, snib.ErrLost)):
		return served, err
	case led || isPermanent(err):
		return finished, err
	case errors.Is(err, snib.ErrHeld): // with snib.MaxWait or snib.NoWait
		return notElected, nil
	}
	return notElected, err
}

// isPermanent reports whether another campaign would fail with the same error.
func isPermanent(err error) bool {
	return errors.Is(err, snib.ErrInvalid) || errors.Is(err, snib.ErrKind) || errors.Is(err, snib.ErrNested) ||
		errors.Is(err, snib.ErrClosed)
}

// wait pauses, longer after each failed campaign, and reports whether to continue.
func (c *candidate) wait(ctx context.Context, failed int) bool {
	pause := c.pause << min(max(failed-1, 0), maxDoublings)
	timer := time.NewTimer(pause/2 + rand.N(pause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
