package pattern

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/redislock"
)

// snibLock is snib on Redis. The lock has the same key as those of the other patterns. All leases
// are as long as the grace after a failover, so that it covers each of them.
func snibLock(r *redisClient) (*Client, error) {
	l, err := openSnib(r)
	if err != nil {
		return nil, err
	}
	return l.client(), nil
}

// fencedSnib is snibLock with a guard at the stock.
func fencedSnib(r *redisClient) (*Client, error) {
	l, err := openSnib(r)
	if err != nil {
		return nil, err
	}
	c := l.client()
	c.workThrough(r.client, l)
	return c, nil
}

func openSnib(r *redisClient) (*snibClient, error) {
	driver, err := redislock.New(context.Background(), r.client, redislock.GraceFloor(r.TTL))
	if err != nil {
		return nil, err
	}
	return newSnibClient(driver, LockKey, r.Spec, r.trace)
}

func newSnibClient(driver snib.Driver, name string, s Spec, t Tracer) (*snibClient, error) {
	locker, err := snib.New(driver, snib.TTL(s.TTL), snib.Label(s.Client), snib.Tracing(&snib.Trace{
		Renewed: func(e snib.RenewedEvent) {
			if e.Err == nil {
				t.Renewed()
			}
		},
		Lost: func(e snib.LostEvent) { t.Lost(string(e.Loss)) },
	}))
	if err != nil {
		return nil, err
	}
	return &snibClient{locker: locker, name: name, trace: t}, nil
}

// A snibClient is a client that locks by snib.
type snibClient struct {
	locker *snib.Locker
	name   string
	trace  Tracer
	lock   *snib.Lock // the last that it held
}

func (c *snibClient) client() *Client {
	return &Client{Try: c.try, Wait: c.wait, Held: c.held, Release: c.release}
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
	call := "snib: Acquire " + c.name
	c.trace.Before(call)
	lock, err := acquire(ctx, c.name)
	var grace *redislock.GraceError
	switch {
	case err == nil:
		c.lock = lock
		c.trace.After(call, fmt.Sprintf("token %d", lock.Token()))
	case errors.Is(err, snib.ErrHeld):
		c.trace.After(call, "held by another")
	case errors.As(err, &grace):
		c.trace.After(call, "unavailable: the server grants nothing for "+grace.Left.Round(100*time.Millisecond).String())
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
	call := "snib: Release " + c.name
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
