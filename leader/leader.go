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

	// maxDoublings bounds the pause after campaigns that failed: 2^4 times the one of [Pause].
	maxDoublings = 4
)

// Run campaigns for the leadership under a name, and calls fn when it has got it, again and again until ctx is done. The name is that
// of a lock of locker, whose options apply: its TTL is how long nobody leads after a leader has died. It must ask for neither
// [snib.Shared] nor [snib.Slots], or there are as many leaders as there can be holds.
//
// While fn runs, this process leads. Fn's context ends with ctx, or before the store can make another one the leader; [context.Cause] says
// why, as in [snib.Locker.Do]. As long as fn winds down after the end of ctx, this process goes on leading.
//
//   - When fn returns nil, Run resigns and campaigns again, after a pause in which others get their turn.
//   - When fn returns an error, Run resigns and returns it. An fn that wants to go on in spite of an error returns nil.
//   - When the leadership was lost by the time that fn returned, Run campaigns again, after a pause, whatever fn returned.
//   - When fn panics, or ends its goroutine, Run resigns on the way.
//
// While the store is out of reach, Run tries again, with pauses that grow to 16 times that of [Pause]. [OnError] tells of it.
//
// Run returns what fn returned, or the cause of ctx once that is done. It does not go on after an error which will not pass
// by itself: [snib.ErrInvalid], [snib.ErrKind], [snib.ErrNested], [snib.ErrClosed].
func Run(ctx context.Context, locker *snib.Locker, name string, fn func(ctx context.Context, lock *snib.Lock) error, opts ...Option) error {
	c := candidate{locker: locker, name: name, fn: fn, pause: defaultPause, onError: func(error) {}}
	if err := c.configure(opts); err != nil {
		return err
	}
	failed := 0 // campaigns in a row, for want of a store
	for {
		result, err := c.stand(ctx)
		switch {
		case result == over:
			return err
		case ctx.Err() != nil:
			return cmp.Or(err, context.Cause(ctx))
		case result == defeated && err != nil:
			failed++
		default:
			failed = 0
		}
		if err != nil {
			c.onError(err)
		}
		if !c.rest(ctx, failed) {
			return context.Cause(ctx)
		}
	}
}

// An Option changes how [Run] campaigns.
type Option struct{ set func(*candidate) error }

// Pause sets the mean pause between the end of a term, or of a campaign that failed, and the next campaign; one second by default. Pauses are
// spread over half to one and a half of it. One that is not positive, or longer than a day, is an [snib.ErrInvalid].
func Pause(d time.Duration) Option {
	return Option{func(c *candidate) error {
		if d <= 0 || d > maxPause {
			return fmt.Errorf("leader: %w Pause: %v is not within 1ns and %v", snib.ErrInvalid, d, maxPause)
		}
		c.pause = d
		return nil
	}}
}

// OnError has f called with each error that [Run] goes on after: the store's, which is out of reach, and those of a term
// that ended because the leadership was lost, which match [snib.ErrLost]. Run waits for f.
func OnError(f func(error)) Option {
	return Option{func(c *candidate) error {
		if f == nil {
			return fmt.Errorf("leader: %w OnError: the function is nil", snib.ErrInvalid)
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
		return fmt.Errorf("leader: %w call of Run: it needs a Locker and a function", snib.ErrInvalid)
	}
	for _, o := range opts {
		if o.set == nil {
			return fmt.Errorf("leader: %w option: the zero Option", snib.ErrInvalid)
		}
		if err := o.set(c); err != nil {
			return err
		}
	}
	return nil
}

// A result is how a campaign came out.
type result int

const (
	over     result = iota // Run is to return
	defeated               // it never led; the error is the store's, or nil if others lead
	served                 // it led, and may again; the error is how it lost the leadership
)

// stand campaigns once, and leads if that succeeds.
func (c *candidate) stand(ctx context.Context) (result, error) {
	var led, lost bool
	var failure error // of fn
	err := c.locker.Do(ctx, c.name, func(term context.Context, lock *snib.Lock) error {
		led = true
		failure = c.fn(term, lock)
		lost = lock.Validity() <= 0 // by the clock: after a pause, fn may return before anybody has been told
		return failure
	})
	switch {
	case led && (lost || failure == nil):
		return served, err
	case led || permanent(err):
		return over, err
	case errors.Is(err, snib.ErrHeld): // with snib.MaxWait, or snib.NoWait
		return defeated, nil
	}
	return defeated, err
}

// permanent reports whether it is of no use to campaign again.
func permanent(err error) bool {
	return errors.Is(err, snib.ErrInvalid) || errors.Is(err, snib.ErrKind) || errors.Is(err, snib.ErrNested) || errors.Is(err, snib.ErrClosed)
}

// rest pauses, longer for each campaign that has failed, and reports whether to go on.
func (c *candidate) rest(ctx context.Context, failed int) bool {
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

// Current tells who leads, or reports false if nobody does. It is what the store knows: a leader that has died stands there until its lease
// has lapsed, and the answer may be out of date when it comes. So it is for people, and for finding the leader; nothing must be decided by it.
//
// The inspector is the driver that the Locker was made with. The name is as the store has it, [snib.Prefix] included. A name that is no
// exclusive lock is an [snib.ErrKind]. Whoever knows the owner that stands in the answer can release the lock, so it does not
// belong into logs.
func Current(ctx context.Context, i driver.Inspector, name string) (leader driver.Holding, ok bool, err error) {
	if i == nil {
		return leader, false, fmt.Errorf("leader: %w Inspector: it is nil", snib.ErrInvalid)
	}
	if err = driver.CheckName(name); err != nil {
		return leader, false, fmt.Errorf("leader: %w", err)
	}
	status, err := i.Status(ctx, name)
	switch {
	case err != nil:
		return leader, false, fmt.Errorf("leader: who leads %q: %w", name, err)
	case len(status.Holders) == 0:
		return leader, false, nil
	case status.Shared || status.Slots > 0:
		return leader, false, fmt.Errorf("leader: %w: %q is held as a lock that several can hold", snib.ErrKind, name)
	}
	return status.Holders[0], true, nil
}
