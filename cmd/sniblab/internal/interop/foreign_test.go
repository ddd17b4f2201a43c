package interop_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// A foreignLocker is a client of another lock library on the same server. It is
// safe for concurrent use.
type foreignLocker interface {
	// try acquires a lock without waiting, or returns errRefused.
	try(name string, ttl time.Duration) (hold, error)

	// wait acquires a lock, and waits for it in the library's own way.
	wait(ctx context.Context, name string, ttl time.Duration) (hold, error)
}

// A hold is a lock that a foreign client holds.
type hold interface {
	value() string // the value of the key
	extend(ttl time.Duration) error
	release() error // errRefused if the lock is not held by it any more
}

// errRefused means that the foreign client works, and that somebody else holds the lock.
var errRefused = errors.New("refused")

func TestRedsync(t *testing.T) {
	run(t, func(t *testing.T, addr string) foreignLocker {
		return redsyncClient{redsync.New(redsyncpool.NewPool(dial(t, addr)))}
	})
}

func TestBsmRedislock(t *testing.T) {
	run(t, func(t *testing.T, addr string) foreignLocker { return bsmClient{bsm.New(dial(t, addr))} })
}

func dial(t *testing.T, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { client.Close() })
	return client
}

type redsyncClient struct{ *redsync.Redsync }

type redsyncHold struct {
	redsyncClient
	*redsync.Mutex
}

// mutex returns a mutex that gives the server the whole TTL to answer: the default
// is 5 % of the TTL.
func (c redsyncClient) mutex(name string, ttl time.Duration, opts ...redsync.Option) *redsync.Mutex {
	return c.NewMutex(name, append(opts, redsync.WithExpiry(ttl), redsync.WithTimeoutFactor(1))...)
}

func (c redsyncClient) try(name string, ttl time.Duration) (hold, error) {
	m := c.mutex(name, ttl)
	return redsyncHold{c, m}, redsyncError(m.TryLock())
}

func (c redsyncClient) wait(ctx context.Context, name string, ttl time.Duration) (hold, error) {
	m := c.mutex(name, ttl, redsync.WithTries(1000), redsync.WithRetryDelay(50*time.Millisecond))
	return redsyncHold{c, m}, redsyncError(m.LockContext(ctx))
}

func redsyncError(err error) error {
	if taken := new(redsync.ErrTaken); errors.As(err, &taken) || errors.Is(err, redsync.ErrLockAlreadyExpired) {
		return errRefused
	}
	return err
}

func (h redsyncHold) value() string { return h.Value() }

func (h redsyncHold) extend(ttl time.Duration) error {
	_, err := h.mutex(h.Name(), ttl, redsync.WithValue(h.Value())).Extend()
	return redsyncError(err)
}

func (h redsyncHold) release() error {
	_, err := h.Unlock()
	return redsyncError(err)
}

type bsmClient struct{ *bsm.Client }

type bsmHold struct{ *bsm.Lock }

// try sets metadata, which bsm/redislock appends to the random part of the value.
func (c bsmClient) try(name string, ttl time.Duration) (hold, error) {
	l, err := c.Obtain(context.Background(), name, ttl, &bsm.Options{Metadata: " of somebody else"})
	return bsmHold{l}, bsmError(err)
}

func (c bsmClient) wait(ctx context.Context, name string, ttl time.Duration) (hold, error) {
	l, err := c.Obtain(ctx, name, ttl, &bsm.Options{RetryStrategy: bsm.LinearBackoff(50 * time.Millisecond)})
	return bsmHold{l}, bsmError(err)
}

func bsmError(err error) error {
	if errors.Is(err, bsm.ErrNotObtained) || errors.Is(err, bsm.ErrLockNotHeld) {
		return errRefused
	}
	return err
}

func (h bsmHold) value() string { return h.Token() + h.Metadata() }

func (h bsmHold) extend(ttl time.Duration) error {
	return bsmError(h.Refresh(context.Background(), ttl, nil))
}

func (h bsmHold) release() error { return bsmError(h.Release(context.Background())) }

// TestRefusals checks what the other tests rely on: that foreign clients
// distinguish a refusal from a failure.
func TestRefusals(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	for _, c := range []foreignLocker{redsyncClient{redsync.New(redsyncpool.NewPool(client))},
		bsmClient{bsm.New(client)}} {
		if _, err := c.try("lock", time.Second); err == nil || errors.Is(err, errRefused) || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s without a server = %v, want that it can't be reached", fmt.Sprintf("%T", c), err)
		}
	}
}
