// Package retry is about when a store that could not serve a request is asked again.
package retry

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sniblock/snib/driver"
)

// Pauses double from the first to the longest. That is longer for a server that may be well and
// needs nothing but fewer clients: it has no connection left, or takes so long that it may be
// overloaded.
const (
	firstPause       = 100 * time.Millisecond
	longestPause     = 2 * time.Second
	longestPauseBusy = 8 * time.Second
)

// An Outage is a series of requests that a store could not serve. The zero value is one that has
// yet to begin.
type Outage struct {
	began time.Time     // when the first of them was sent
	pause time.Duration // the last one, without its jitter
}

// Again reports whether a request that was sent at asked, and failed with err, is to be sent again,
// and after which pause. It is if the store is unavailable, for [driver.RetryTimeout]; a store that
// is only full has answered, which begins a new outage. Pauses grow and have jitter: a thousand
// processes that wait for an overloaded store must not keep it overloaded.
func (o *Outage) Again(asked time.Time, err error) (pause time.Duration, ok bool) {
	if !errors.Is(err, driver.ErrUnavailable) {
		return 0, false
	}
	took, full, longest := time.Since(asked), errors.Is(err, driver.ErrFull), longestPause
	switch {
	case o.pause == 0, took > 2*driver.AnswerTimeout: // it has answered in between
		*o = Outage{began: asked, pause: firstPause / 2}
	case full:
		o.began = asked
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

// Rest returns the moment until which a poller must not ask again. The request that it sent at
// asked was answered with err. The pauses are those of Again, but at most longest, and they do not
// end while the outage lasts. It ends when err is nil.
func (o *Outage) Rest(asked time.Time, err error, longest time.Duration) time.Time {
	if err == nil {
		*o = Outage{}
		return time.Time{}
	}
	pause, ok := o.Again(asked, err)
	if !ok {
		pause = longest
	}
	return time.Now().Add(min(pause, longest))
}
