package pattern

import (
	"context"
	"errors"
	"fmt"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/redislock"
)

// snibLock is snib on Redis, with a guard at the stock if fenced is set. The lock has the same key
// as those of the other patterns.
func snibLock(fenced bool) func(*redisClient) (*Client, error) {
	return func(r *redisClient) (*Client, error) {
		driver, err := redislock.New(context.Background(), r.client)
		if err != nil {
			return nil, err
		}
		locker, err := snib.New(driver, snib.TTL(r.TTL), snib.Label(r.Client), snib.Tracing(&snib.Trace{
			Renewed: func(e snib.RenewedEvent) {
				if e.Err == nil {
					r.trace.Renewed()
				}
			},
			Lost: func(e snib.LostEvent) { r.trace.Lost(string(e.Loss)) },
		}))
		if err != nil {
			return nil, err
		}
		l := &snibClient{locker: locker, trace: r.trace}
		c := &Client{Try: l.try, Wait: l.wait, Held: l.held, Release: l.release}
		if fenced {
			c.workThrough(r.client, l)
		}
		return c, nil
	}
}

// A snibClient is a client that locks by snib.
type snibClient struct {
	locker *snib.Locker
	trace  Tracer
	lock   *snib.Lock // the last that it held
}

func (c *snibClient) try(ctx context.Context) (bool, error) {
	err := c.acquire(ctx, c.locker.TryAcquire)
	if errors.Is(err, snib.ErrHeld) || errors.Is(err, snib.ErrUnavailable) {
		return false, nil
	}
	return err == nil, err
}

func (c *snibClient) wait(ctx context.Context) error { return c.acquire(ctx, c.locker.Acquire) }

func (c *snibClient) acquire(ctx context.Context, acquire func(context.Context, string) (*snib.Lock, error)) error {
	const call = "snib: Acquire " + LockKey
	c.trace.Before(call)
	lock, err := acquire(ctx, LockKey)
	switch {
	case err == nil:
		c.lock = lock
		c.trace.After(call, fmt.Sprintf("token %d", lock.Token()))
	case errors.Is(err, snib.ErrHeld):
		c.trace.After(call, "held by another")
	case errors.Is(err, snib.ErrUnavailable):
		c.trace.After(call, "unavailable")
	}
	return err
}

// held returns an error if the lock was lost.
func (c *snibClient) held() error {
	select {
	case <-c.lock.Lost():
		return ErrRefused
	default:
		return nil
	}
}

func (c *snibClient) release(context.Context) error {
	const call = "snib: Release " + LockKey
	c.trace.Before(call)
	err := c.lock.Release()
	if errors.Is(err, snib.ErrLost) {
		c.trace.After(call, "it was lost")
		return nil
	}
	if err == nil {
		c.trace.After(call, "ok")
	}
	return err
}
