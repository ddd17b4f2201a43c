package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/sniblock/snib/lab/contestant"
)

// dialRedis connects to the server of a URL.
func dialRedis(ctx context.Context, url string) (*redis.Client, error) {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(opts)
	return client, client.Ping(ctx).Err()
}

// openRedsync has redsync's Mutex. It gives up after 32 tries, or when the wait is over.
func openRedsync(ctx context.Context, m contestant.Message) (contestant.Locker, error) {
	client, err := dialRedis(ctx, m.URL)
	if err != nil {
		return nil, err
	}
	locks := redsync.New(goredis.NewPool(client))
	return lockerFunc(func(ctx context.Context, wait time.Duration) (contestant.Hold, error) {
		waiting, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		mutex := locks.NewMutex(m.Name, redsync.WithExpiry(ttl(m)))
		err := mutex.LockContext(waiting)
		taken := new(redsync.ErrTaken)
		switch {
		case errors.As(err, &taken), errors.Is(err, redsync.ErrFailed), err != nil && waiting.Err() != nil:
			return nil, contestant.ErrDenied
		case err != nil:
			return nil, err
		}
		return hold{
			held: func() bool { return time.Now().Before(mutex.Until()) },
			release: func(ctx context.Context) error {
				_, err := mutex.UnlockContext(ctx)
				return err
			},
		}, nil
	}), nil
}

// openBSM has the Lock of bsm/redislock, which retries only if it is told how.
func openBSM(ctx context.Context, m contestant.Message) (contestant.Locker, error) {
	client, err := dialRedis(ctx, m.URL)
	if err != nil {
		return nil, err
	}
	locks := redislock.New(client)
	return lockerFunc(func(ctx context.Context, wait time.Duration) (contestant.Hold, error) {
		waiting, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		lock, err := locks.Obtain(waiting, m.Name, ttl(m), &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
		switch {
		case errors.Is(err, redislock.ErrNotObtained), err != nil && waiting.Err() != nil:
			return nil, contestant.ErrDenied
		case err != nil:
			return nil, err
		}
		return hold{
			held: func() bool {
				left, err := lock.TTL(ctx)
				return err == nil && left > 0
			},
			release: lock.Release,
		}, nil
	}), nil
}
