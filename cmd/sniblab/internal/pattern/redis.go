package pattern

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Patterns with one Redis server. The value of the key is the client's name, where a
// program would use a random text.
const (
	SetnxExpire Name = "SETNX, then EXPIRE"
	GetSet      Name = "GET, then SET"
	Del         Name = "SET NX PX, then DEL"
	GetDel      Name = "SET NX PX, then GET and DEL"
	Getset      Name = "GETSET of a time"
	SetNX       Name = "SET NX PX, then a script"
	NoExpiry    Name = "SETNX without a TTL"
	Renewed     Name = "SET NX PX, renewed by a script"
	Counted     Name = "SET NX PX, and a token from INCR"
	Snib        Name = "snib"
	FencedSnib  Name = "snib, and a guard"
)

// keyPrefix begins the keys of locks, as in most articles.
const keyPrefix = "lock:"

// Keys in Redis.
const (
	LockKey  = keyPrefix + LockName // of the lock
	GuardKey = StockName + ":fence" // of what a guard remembers of the last token
)

// none is what Redis answers if there is no such key, or if SET … NX did nothing.
const none = "nil"

// A redisClient sends one command at a time, as a simple program would, and traces it.
type redisClient struct {
	Spec
	trace  Tracer
	client rueidis.Client
}

// onRedis returns a function that opens clients of a pattern.
func onRedis(pattern func(*redisClient) (*Client, error)) func(context.Context, Spec, Tracer) (*Client, error) {
	return func(_ context.Context, s Spec, t Tracer) (*Client, error) {
		option, err := redisOption(s.URLs[0])
		if err != nil {
			return nil, err
		}
		client, err := rueidis.NewClient(option)
		if err != nil {
			return nil, err
		}
		r := &redisClient{Spec: s, trace: t, client: client}
		c, err := pattern(r)
		if err != nil {
			r.client.Close()
			return nil, err
		}
		if c.Read == nil {
			c.workOn(r)
		}
		c.onClose(r.client.Close)
		return c, nil
	}
}

// sentinelScheme begins the URLs of servers behind Sentinels.
const sentinelScheme = "redis+sentinel://"

// redisOption returns how to connect to redis://HOST:PORT, or to
// redis+sentinel://HOST:PORT,.../MASTER, in which the hosts are Sentinels.
func redisOption(url string) (rueidis.ClientOption, error) {
	rest, ok := strings.CutPrefix(url, sentinelScheme)
	if !ok {
		option, err := rueidis.ParseURL(url)
		option.ForceSingleClient, option.DisableCache = true, true
		return option, err
	}
	hosts, master, _ := strings.Cut(rest, "/")
	return rueidis.ClientOption{
		InitAddress: strings.Split(hosts, ","), Sentinel: rueidis.SentinelOption{MasterSet: master}, DisableCache: true,
	}, nil
}

// workOn makes the client work on the stock on r's server. A client that knows that it has lost
// the lock writes nothing.
func (c *Client) workOn(r *redisClient) {
	c.Read = r.readStock
	c.Write = func(ctx context.Context, stock int) error {
		if c.Held != nil {
			shown := fmt.Sprintf("SET %s %d", StockName, stock)
			r.trace.Before(shown)
			if err := c.Held(); err != nil {
				r.trace.After(shown, "not sent: the lock is lost")
				return err
			}
		}
		return r.writeStock(ctx, stock)
	}
}

// onClose adds something to do when the client is closed.
func (c *Client) onClose(f func()) {
	if before := c.Close; before != nil {
		c.Close = func() { before(); f() }
	} else {
		c.Close = f
	}
}

// do sends a command, and returns the answer as text.
func (r *redisClient) do(ctx context.Context, command ...string) (string, error) {
	return r.doAs(ctx, strings.Join(command, " "), command...)
}

// doAs is do for a command that is shown as another text, because it is too long.
func (r *redisClient) doAs(ctx context.Context, shown string, command ...string) (string, error) {
	r.trace.Before(shown)
	answer, err := r.client.Do(ctx, r.client.B().Arbitrary(command...).Build()).ToAny()
	if rueidis.IsRedisNil(err) {
		answer, err = none, nil
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", shown, err)
	}
	text := fmt.Sprint(answer)
	r.trace.After(shown, text)
	return text, nil
}

func (s Spec) ttlMillis() string { return strconv.FormatInt(s.TTL.Milliseconds(), 10) }

// ttlSeconds returns the TTL for EXPIRE, which takes whole seconds.
func (s Spec) ttlSeconds() string { return strconv.Itoa(int(s.TTL.Seconds())) }

// setnxExpire makes the key by one command, and gives it its expiry by the next one.
func setnxExpire(r *redisClient) (*Client, error) {
	return &Client{
		Try: func(ctx context.Context) (bool, error) {
			made, err := r.do(ctx, "SETNX", LockKey, r.Client)
			if err != nil || made == "0" {
				return false, err
			}
			_, err = r.do(ctx, "EXPIRE", LockKey, r.ttlSeconds())
			return err == nil, err
		},
		Release: r.compareAndDelete,
	}, nil
}

// getSet looks whether the lock is free, and then takes it.
func getSet(r *redisClient) (*Client, error) {
	return &Client{
		Try: func(ctx context.Context) (bool, error) {
			holder, err := r.do(ctx, "GET", LockKey)
			if err != nil || holder != none {
				return false, err
			}
			if _, err = r.do(ctx, "SET", LockKey, r.Client); err != nil {
				return false, err
			}
			_, err = r.do(ctx, "EXPIRE", LockKey, r.ttlSeconds())
			return err == nil, err
		},
		Release: r.compareAndDelete,
	}, nil
}

// withDel frees the lock without a look at who holds it.
func withDel(r *redisClient) (*Client, error) {
	return &Client{
		Try: r.setIfFree,
		Release: func(ctx context.Context) error {
			_, err := r.do(ctx, "DEL", LockKey)
			return err
		},
	}, nil
}

// getDel frees the lock after a look at who holds it.
func getDel(r *redisClient) (*Client, error) {
	return &Client{
		Try: r.setIfFree,
		Release: func(ctx context.Context) error {
			holder, err := r.do(ctx, "GET", LockKey)
			if err != nil || holder != r.Client {
				return err
			}
			_, err = r.do(ctx, "DEL", LockKey)
			return err
		},
	}, nil
}

// getset stores in the lock the time at which it ends, by the clocks of the clients. A client that
// finds a time in the past takes the lock over.
func getset(r *redisClient) (*Client, error) {
	var since time.Time
	end := func() string { return fmt.Sprintf("%.3f", r.clock()+r.TTL.Seconds()) }
	try := func(ctx context.Context) (bool, error) {
		since = time.Now()
		made, err := r.do(ctx, "SETNX", LockKey, end())
		if err != nil || made == "1" {
			return err == nil, err
		}
		old, err := r.do(ctx, "GET", LockKey)
		if err != nil || old == none {
			return false, err
		}
		if over, err := strconv.ParseFloat(old, 64); err != nil || over > r.clock() {
			return false, err
		}
		replaced, err := r.do(ctx, "GETSET", LockKey, end())
		return replaced == old, err
	}
	return &Client{
		Try: try,
		Release: func(ctx context.Context) error {
			if time.Since(since) > r.TTL {
				return nil // somebody else may have it by now
			}
			_, err := r.do(ctx, "DEL", LockKey)
			return err
		},
	}, nil
}

// setNX is right as far as one server goes: both steps are atomic. It is not renewed.
func setNX(r *redisClient) (*Client, error) {
	return &Client{Try: r.setIfFree, Release: r.compareAndDelete}, nil
}

// setIfFree makes the key with its value and its expiry, if there is no such key, all at once.
func (r *redisClient) setIfFree(ctx context.Context) (bool, error) {
	answer, err := r.do(ctx, "SET", LockKey, r.Client, "NX", "PX", r.ttlMillis())
	return answer == "OK", err
}

// compareAndDelete deletes the key if its value is still ours, in one script, between whose
// commands no other client's command runs.
func (r *redisClient) compareAndDelete(ctx context.Context) error {
	_, err := r.doAs(ctx, fmt.Sprintf(compareAndDeleteText, LockKey, r.Client), "EVAL", compareAndDeleteScript, "1", LockKey, r.Client)
	return err
}

const (
	compareAndDeleteScript = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`
	compareAndDeleteText   = "EVAL (if GET %s = %s then DEL)"
)

func (r *redisClient) readStock(ctx context.Context) (int, error) {
	text, err := r.do(ctx, "GET", StockName)
	if err != nil {
		return 0, err
	}
	stock, err := strconv.Atoi(text)
	if err != nil {
		return 0, errors.New("the stock is gone: GET " + StockName + " answers " + text)
	}
	return stock, nil
}

func (r *redisClient) writeStock(ctx context.Context, stock int) error {
	_, err := r.do(ctx, "SET", StockName, strconv.Itoa(stock))
	return err
}
