package driverkit

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sniblock/snib/driver"
)

// Pauses double from the first to the longest. The longest pause is longer for a server that
// may be well and only needs fewer clients: one that has no connection left, or that takes so
// long that it may be overloaded.
const (
	firstPause       = 100 * time.Millisecond
	longestPause     = 2 * time.Second
	longestPauseBusy = 8 * time.Second
)

// An Outage is a series of requests that a store could not serve. The zero value is
// an outage that has not begun.
type Outage struct {
	began time.Time     // when the first request was sent
	pause time.Duration // the last pause, without jitter
}

// Again reports whether to retry a request that was sent at sentAt and failed with err, and after
// which pause. A request is retried while the store is unavailable, for [driver.RetryTimeout]. A
// store that is only full has answered, so the outage begins anew. Pauses grow and have jitter: a
// thousand processes that wait for an overloaded store must not keep it overloaded.
func (o *Outage) Again(sentAt time.Time, err error) (pause time.Duration, ok bool) {
	if !errors.Is(err, driver.ErrUnavailable) {
		return 0, false
	}
	took, full, longest := time.Since(sentAt), errors.Is(err, driver.ErrFull), longestPause
	switch {
	case o.pause == 0, took > 2*driver.AnswerTimeout: // the store has answered in between
		*o = Outage{began: sentAt, pause: firstPause / 2}
	case full:
		o.began = sentAt
	}
	if full || took > driver.AnswerTimeout/2 {
		longest = longestPauseBusy
	}
	if time.Since(o.began) >= driver.RetryTimeout {
		return 0, false
	}
	o.pause = min(2*o.pause, longest)
	return o.pause/2 + rand.N(o.pause), true
}

// Rest returns the time until which a poller must not send another request. Its last
// request was sent at sentAt, and answered with err. The pauses are those of Again, but at
// most longest, and they continue as long as the outage lasts. A nil err ends the outage,
// and Rest returns the zero time.
func (o *Outage) Rest(sentAt time.Time, err error, longest time.Duration) time.Time {
	if err == nil {
		*o = Outage{}
		return time.Time{}
	}
	pause, ok := o.Again(sentAt, err)
	if !ok {
		pause = longest
	}
	return time.Now().Add(min(pause, longest))
}
