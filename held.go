package snib

// This file has the error of an acquisition that was refused, by which a caller learns who holds
// the lock.

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
)

// A HeldError is the error of an acquisition that did not get the lock because somebody else holds
// it. It matches [ErrHeld], and [errors.As] finds it. [HeldError.Info] says who holds the lock.
type HeldError struct {
	// Waited is the [MaxWait] that ended the wait, or 0 if the acquisition did not wait.
	Waited time.Duration

	refusal error // of the driver, or why the wait ended
	locker  *Locker
	name    string // in the store
}

func (e *HeldError) Error() string {
	if e.Waited > 0 {
		return fmt.Sprintf("%v: %v", ErrHeld, e.refusal)
	}
	return e.refusal.Error()
}

// Is reports whether target is [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Unwrap returns the driver's error.
func (e *HeldError) Unwrap() error { return e.refusal }

// Info asks the store who holds the lock, and how many wait for it. An acquisition that was refused
// does not ask by itself: with a long queue that would be too much work for a store that is busy
// already. The answer describes the lock as it is now, and the holder may be another one by then:
// show it to people, and never base a decision on it. It contains no grant ids.
//
// The context bounds the time of Info, as does [driver.AnswerTimeout] (5 s). If the store does not
// answer, the error matches [ErrUnavailable], and the HeldInfo is the zero value, whose
// [HeldInfo.RetryAfter] can be used as well.
func (e *HeldError) Info(ctx context.Context) (info HeldInfo, err error) {
	var st Status
	err = e.locker.inspect(ctx, "status", e.name, func(name string) error {
		st, err = e.locker.statusInTime(ctx, name)
		return withCallerContext(ctx, err)
	})
	if err != nil {
		return HeldInfo{}, err
	}
	info = HeldInfo{Shared: st.Shared, Slots: st.Slots, Waiters: len(st.Waiters)}
	for _, h := range st.Holders {
		h.ID = ""
		info.Holders = append(info.Holders, h)
	}
	c := e.locker.core
	c.mu.Lock()
	defer c.mu.Unlock()
	info.Waiters += c.queues[e.name].waiterCount()
	return info, nil
}

// A HeldInfo says who holds a lock and how many wait for it, as far as the store knows.
type HeldInfo struct {
	Holders []Holding // without their ids; empty if nobody holds the lock any more
	Shared  bool      // held on the read side
	Slots   int       // of a semaphore, the least number that a holder asked for; 0 if it is none

	// Waiters is the number of waiters in the store, where most processes have one at a time, and
	// of the goroutines that wait behind it in this process.
	Waiters int
}

const (
	minRetryAfter = time.Second
	maxRetryAfter = time.Minute
)

// RetryAfter returns after what time another attempt makes sense, for people or for the HTTP header
// Retry-After: whole seconds, from 1 s to 1 min. It is a guess: that a holder needs as long as it
// has needed so far, but at most the rest of its lease. It does not consider the waiters.
func (i HeldInfo) RetryAfter() time.Duration {
	first := maxRetryAfter
	for _, h := range i.Holders {
		if h.Held > 0 {
			first = min(first, h.Held)
		}
		if !h.Inherited {
			first = min(first, h.Left)
		}
	}
	if len(i.Holders) == 0 {
		return minRetryAfter
	}
	return max(minRetryAfter, (first + time.Second - 1).Truncate(time.Second))
}

// String describes the holders in one line, for logs and messages. Text that others have written,
// such as a label, is quoted if it contains other than graphic characters.
func (i HeldInfo) String() string {
	const most = 3
	parts := make([]string, 0, most+2)
	for n, h := range i.Holders {
		if n == most {
			parts = append(parts, fmt.Sprintf("%d more", len(i.Holders)-most))
			break
		}
		parts = append(parts, describe(h))
	}
	text := "held by nobody any more"
	if len(parts) > 0 {
		text = "held by " + strings.Join(parts, ", and by ")
	}
	if i.Waiters > 0 {
		text += fmt.Sprintf("; waiting: %d", i.Waiters)
	}
	return text
}

// describe describes a holder in one line.
func describe(h Holding) string {
	var words []string
	switch {
	case h.Foreign != "":
		words = append(words, graphic(h.Foreign))
	case h.Holder.Host == "" && h.Holder.PID == 0 && h.Holder.Label == "":
		words = append(words, "a program other than snib")
	default:
		words = append(words, graphic(h.Holder.Host), "pid "+strconv.Itoa(h.Holder.PID))
		if text := h.Holder.Text(); text != "" {
			words = append(words, "("+graphic(text)+")")
		}
	}
	if h.Held > 0 {
		words = append(words, "for "+h.Held.Round(time.Millisecond).String())
	}
	text := strings.Join(words, " ")
	if h.Inherited || h.Left == driver.NoExpiry {
		return text
	}
	return text + ", lease left " + h.Left.Round(time.Millisecond).String()
}

// graphic returns text, quoted if it contains other than graphic characters.
func graphic(text string) string {
	if quoted := strconv.QuoteToGraphic(text); quoted != `"`+text+`"` {
		return quoted
	}
	return text
}

// withHeldError returns the error of an acquisition as a *[HeldError] if the store or the local
// queue has said that somebody holds the lock, or if MaxWait has ended the wait for a holder.
// During an outage it returns err as it is.
func (l *Locker) withHeldError(name string, err error) error {
	var timeout *waitError
	isOver := errors.As(err, &timeout)
	switch {
	case errors.Is(err, ErrUnavailable):
		return err
	case isOver:
		return &HeldError{Waited: timeout.after, refusal: err, locker: l, name: name}
	case errors.Is(err, ErrHeld):
		return &HeldError{refusal: err, locker: l, name: name}
	}
	return err
}
