package pattern

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// noExpiry makes a key that stays until its client deletes it.
func noExpiry(r *redisClient) (*Client, error) {
	return &Client{
		Try: func(ctx context.Context) (bool, error) {
			made, err := r.do(ctx, "SETNX", LockKey, r.Client)
			return made == "1", err
		},
		Release: r.compareAndDelete,
	}, nil
}

const renewScript = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("PEXPIRE", KEYS[1], ARGV[2]) end return 0`

// renewed renews the key every third of its TTL, by a script that looks whether the key is still
// its own. It knows that the lock is lost when the script says so, or when the TTL is over since
// the last renewal was sent.
func renewed(r *redisClient) (*Client, error) {
	renew := func(ctx context.Context) (bool, error) {
		answer, err := r.doAs(ctx, "EVAL (if GET "+LockKey+" = "+r.Client+" then PEXPIRE)", "EVAL", renewScript, "1", LockKey, r.Client, r.ttlMillis())
		return answer == "1", err
	}
	var k keeper
	return &Client{
		Try: func(ctx context.Context) (bool, error) {
			sent := time.Now()
			held, err := r.setIfFree(ctx)
			if held {
				k.start(r, sent, renew)
			}
			return held, err
		},
		Release: func(ctx context.Context) error {
			k.stop()
			return r.compareAndDelete(ctx)
		},
		Close: k.stop, Held: k.held,
	}, nil
}

// counted is renewed, and draws a fencing token when it has the lock.
func counted(r *redisClient) (*Client, error) {
	c, err := renewed(r)
	if err != nil {
		return nil, err
	}
	var token uint64
	try := c.Try
	c.Try = func(ctx context.Context) (bool, error) {
		if held, err := try(ctx); !held || err != nil {
			return false, err
		}
		text, err := r.do(ctx, "INCR", tokenKey)
		if err != nil {
			return false, err
		}
		token, err = strconv.ParseUint(text, 10, 64)
		return err == nil, err
	}
	c.Token = func() uint64 { return token }
	return c, nil
}

// tokenKey is the key of the counter of tokens.
const tokenKey = LockKey + ":token"

// A keeper renews a lease in the background.
type keeper struct {
	mu    sync.Mutex
	until time.Time // when the lease ends, as far as the client knows
	end   func()    // stops the renewals; nil if there are none
}

func (k *keeper) held() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !time.Now().Before(k.until) {
		return ErrRefused
	}
	return nil
}

// extend records until when the lease lasts. A lease that has ended stays over.
func (k *keeper) extend(until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Now().Before(k.until) {
		k.until = until
	}
}

func (k *keeper) start(r *redisClient, sent time.Time, renew func(context.Context) (bool, error)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	k.mu.Lock()
	k.until, k.end = sent.Add(r.TTL), func() { cancel(); <-done }
	k.mu.Unlock()
	go func() {
		defer close(done)
		tick := time.NewTicker(r.TTL / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			sent := time.Now()
			switch held, err := renew(ctx); {
			case err != nil: // it tries again
			case held:
				k.extend(sent.Add(r.TTL))
			default:
				k.extend(time.Time{})
			}
		}
	}()
}

func (k *keeper) stop() {
	k.mu.Lock()
	end := k.end
	k.end = nil
	k.mu.Unlock()
	if end != nil {
		end()
	}
}
