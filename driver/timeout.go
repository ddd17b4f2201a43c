package driver

import "time"

// The timeouts of an acquisition are the same on every backend.
const (
	// AnswerTimeout bounds the wait for one answer of the store. A request with NoWait that
	// gets no answer within it fails with [ErrUnavailable].
	AnswerTimeout = 5 * time.Second

	// RetryTimeout is the default of [Request.RetryTimeout]: how long a request that may wait is
	// retried while the store is unavailable. After that the request fails with [ErrUnavailable]. The
	// time in which the store answers [ErrFull] does not count.
	RetryTimeout = time.Minute

	// CancelTimeout is how long after the end of its context an Acquire may take to return,
	// whatever the store does. If the store does not confirm the withdrawal in that time, the
	// driver withdraws the request in the background.
	CancelTimeout = 50 * time.Millisecond
)

// The limits for clocks, by which the core and the drivers judge how long a lease is safe.
const (
	// Drift says how far the clocks of store and holder may differ in rate: by one part in Drift.
	Drift = 100

	// Margin allows for all else: the scheduler, and the time until goroutines notice that their
	// context has ended.
	Margin = 2 * time.Millisecond
)

// LongestTTL is the longest TTL on any backend. Nobody but an operator can free a lock sooner whose
// holder has died, so a TTL that is longer is a mistake in its unit.
const LongestTTL = 366 * 24 * time.Hour
