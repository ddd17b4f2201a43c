package golang

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/sniblock/snib/cmd/sniblab/internal/target"
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
func openRedsync(ctx context.Context, m target.Message) (target.Locker, error) {
	client, err := dialRedis(ctx, m.URL)
	if err != nil {
		return nil, err
	}
	locks := redsync.New(goredis.NewPool(client))
	return func(ctx context.Context, wait time.Duration) (*target.Hold, error) {
		waiting, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		mutex := locks.NewMutex(m.Name, redsync.WithExpiry(ttl(m)))
		err := mutex.LockContext(waiting)
		taken := new(redsync.ErrTaken)
		switch {
		case errors.As(err, &taken), errors.Is(err, redsync.ErrFailed), err != nil && waiting.Err() != nil:
			return nil, target.ErrDenied
		case err != nil:
			return nil, err
		}
		return &target.Hold{
			Held: func() bool { return time.Now().Before(mutex.Until()) },
			Release: func(ctx context.Context) error {
				_, err := mutex.UnlockContext(ctx)
				return err
			},
		}, nil
	}, nil
}

// openBSM has the Lock of bsm/redislock, which retries only if it is told how.
func openBSM(ctx context.Context, m target.Message) (target.Locker, error) {
	client, err := dialRedis(ctx, m.URL)
	if err != nil {
		return nil, err
	}
	locks := redislock.New(client)
	return func(ctx context.Context, wait time.Duration) (*target.Hold, error) {
		waiting, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		retry := redislock.LinearBackoff(100 * time.Millisecond)
		lock, err := locks.Obtain(waiting, m.Name, ttl(m), &redislock.Options{RetryStrategy: retry})
		switch {
		case errors.Is(err, redislock.ErrNotObtained), err != nil && waiting.Err() != nil:
			return nil, target.ErrDenied
		case err != nil:
			return nil, err
		}
		return &target.Hold{
			Held: func() bool {
				left, err := lock.TTL(ctx)
				return err == nil && left > 0
			},
			Release: lock.Release,
		}, nil
	}, nil
}

// openRueidislock has the lock of rueidis with that KeyMajority. The context of a hold ends when
// the lock is lost, and when the context ends that it was taken with.
func openRueidislock(majority int32) opener {
	return func(_ context.Context, m target.Message) (target.Locker, error) {
		opts, err := rueidis.ParseURL(m.URL)
		if err != nil {
			return nil, err
		}
		locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: opts, KeyValidity: ttl(m), KeyMajority: majority,
		})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, wait time.Duration) (*target.Hold, error) {
			ctx, end := context.WithCancel(ctx)
			giveUp := time.AfterFunc(wait, end)
			held, release, err := locks.WithContext(ctx, m.Name)
			inTime := giveUp.Stop()
			switch {
			case err == nil && inTime:
				return &target.Hold{
					Lost: held.Done(), Release: func(context.Context) error { release(); end(); return nil },
				}, nil
			case err == nil:
				release()
			}
			end()
			if !inTime {
				return nil, target.ErrDenied
			}
			return nil, err
		}, nil
	}
}
