package driverkit

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sniblock/snib/driver"
)

// Pauses double from the first to the longest. The longest pause is longer for a server that has no
// connection left, because it may be well and only need fewer clients. It is not longer for one
// that does not answer: the timeout of each request already keeps requests as far apart.
const (
	firstPause       = 100 * time.Millisecond
	longestPause     = 2 * time.Second
	longestPauseFull = 8 * time.Second
)

// An Outage is a series of requests that a store could not serve. The zero value is
// an outage that has not begun.
type Outage struct {
	began time.Time     // when the first request was sent
	pause time.Duration // the last pause, without jitter
}

// AgainWithin reports whether to retry a request that was sent at sentAt and failed with err, and
// after which pause. A request is retried while the store is unavailable, for limit, and for the
// last time at the end of it; a limit of a nanosecond, which is that of snib.RetryTimeout(0), means
// not to retry. A store that is only full has answered, so it ends the outage, and the request is
// retried without a limit. Pauses grow and have jitter: a thousand processes that wait for an
// overloaded store must not keep it overloaded.
//
// An outage ends when the store answers; the caller then sets the Outage to its zero value.
// AgainWithin can't tell whether the store has answered a request in between, as it does when it
// queues one. A driver retries such a request itself, see [driver.Driver].
func (o *Outage) AgainWithin(limit time.Duration, sentAt time.Time, err error) (pause time.Duration, ok bool) {
	full := errors.Is(err, driver.ErrFull)
	switch {
	case !errors.Is(err, driver.ErrUnavailable):
		return 0, false
	case full:
		o.began = time.Time{}
	case o.began.IsZero():
		o.began = sentAt
	}
	left := limit - time.Since(o.began)
	switch {
	case limit <= time.Nanosecond || left <= 0 && !full:
		return 0, false
	case full:
		return o.nextPause(longestPauseFull), true
	}
	return min(o.nextPause(longestPause), left), true
}

// nextPause returns a pause about twice as long as the last one, and of longest at most on average.
func (o *Outage) nextPause(longest time.Duration) time.Duration {
	o.pause = min(max(2*o.pause, firstPause), longest)
	return o.pause/2 + rand.N(o.pause)
}

// Lasted returns for how long the requests have failed, to a tenth of a second. It is zero if there
// is no outage.
func (o *Outage) Lasted() time.Duration {
	if o.began.IsZero() {
		return 0
	}
	return time.Since(o.began).Round(time.Second / 10)
}

// CountFrom makes an outage that began before t count from t. A waiter that began to wait at t, and
// continues the retries of another one, so has a time limit of its own.
func (o *Outage) CountFrom(t time.Time) {
	if !o.began.IsZero() && o.began.Before(t) {
		o.began = t
	}
}

// IsOver reports whether the last request of the outage was not to be retried: the store has been
// unavailable for limit.
func (o *Outage) IsOver(limit time.Duration) bool {
	return !o.began.IsZero() && time.Since(o.began) >= limit
}

// Timeout returns how long a poller waits for the next answer: for shortest while there is no
// outage, and then longer, because the store may only be slow.
func (o *Outage) Timeout(shortest time.Duration) time.Duration {
	if o.began.IsZero() {
		return shortest
	}
	return max(shortest, min(driver.AnswerTimeout, driver.RetryTimeout-time.Since(o.began)))
}

// Rest returns the time until which a poller must not send another request. Its last
// request was sent at sentAt, and answered with err. The pauses are those of AgainWithin, but at
// most longest, and they continue as long as the outage lasts. If err does not match
// [driver.ErrUnavailable], the outage has ended. If it is nil, Rest returns the zero time.
func (o *Outage) Rest(sentAt time.Time, err error, longest time.Duration) time.Time {
	pause, ok := o.AgainWithin(driver.RetryTimeout, sentAt, err)
	switch {
	case err == nil:
		*o = Outage{}
		return time.Time{}
	case !errors.Is(err, driver.ErrUnavailable):
		*o = Outage{}
		pause = longest
	case !ok:
		pause = longest
	}
	return time.Now().Add(min(pause, longest))
}
