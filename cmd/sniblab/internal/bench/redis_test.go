//go:build unix

package bench

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redsyncrueidis "github.com/go-redsync/redsync/v4/redis/rueidis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
	"github.com/redis/rueidis/rueidislock"

	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redislock/goredis"
	"github.com/sniblock/snib/redlock"
)

// ttl is snib's default, for libraries that have none.
const ttl = 30 * time.Second

func redisLibraries() []library {
	return []library{
		{"snib", usual | herd | hold, openRedislock},
		{"snib-goredis", usual | herd, openGoredis},
		{"redsync", usual | herd, openRedsync()},
		{"redsync-rueidis", usual | herd, openRedsyncRueidis()},
		{"bsm-redislock", usual | herd, openBsm},
		{"rueidislock", usual | herd | hold, openRueidislock},
		{"floor", one | many | herd, openFloor},
		{"blpop", handOver, openBlpop},
	}
}

// BenchmarkRedis has Redis save nothing.
func BenchmarkRedis(b *testing.B) { benchmark(b, startRedis(b, "Redis", 1), redisLibraries()) }

// redlockLibraries has redsync with the option with which it waits for a majority only, as snib
// does.
func redlockLibraries() []library {
	return []library{
		{"snib", one | many | contend, openRedlock},
		{"redsync", one | many | contend, openRedsync(redsync.WithFailFast(true))},
		{"redsync-rueidis", one | many | contend, openRedsyncRueidis(redsync.WithFailFast(true))},
	}
}

// BenchmarkRedlock has five servers, which save nothing.
func BenchmarkRedlock(b *testing.B) {
	s := startRedis(b, "Redlock", 5)
	if err := redlock.Admin(nodeOptions(s.addrs)).Init(b.Context()); err != nil {
		b.Fatal(err)
	}
	benchmark(b, s, redlockLibraries())
}

// startRedis starts independent servers.
func startRedis(b *testing.B, name string, n int) *store {
	s := &store{name: name}
	for range n {
		node := redistest.Single(b).Used()
		s.addrs, s.servers, s.redis = append(s.addrs, node.Addr()), append(s.servers, node.Process), append(s.redis, node)
	}
	return s
}

func openRedislock(addrs []string) (*client, error) {
	return snibClient(redislock.Open(context.Background(), rueidis.ClientOption{InitAddress: addrs}))
}

func openGoredis(addrs []string) (*client, error) {
	return snibClient(goredis.New(context.Background(), redis.NewClient(&redis.Options{Addr: addrs[0]})))
}

func openRedlock(addrs []string) (*client, error) {
	return snibClient(redlock.Open(context.Background(), nodeOptions(addrs)))
}

func nodeOptions(addrs []string) (servers []rueidis.ClientOption) {
	for _, addr := range addrs {
		servers = append(servers, rueidis.ClientOption{InitAddress: []string{addr}})
	}
	return servers
}

// redsync: with a new Mutex for each acquisition.

func openRedsync(opts ...redsync.Option) func([]string) (*client, error) {
	return func(addrs []string) (*client, error) {
		var pools []redsyncpool.Pool
		var clients []*redis.Client
		for _, addr := range addrs {
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			clients, pools = append(clients, rdb), append(pools, redsyncgoredis.NewPool(rdb))
		}
		return redsyncClient(pools, opts, func() {
			for _, rdb := range clients {
				_ = rdb.Close()
			}
		}), nil
	}
}

func openRedsyncRueidis(opts ...redsync.Option) func([]string) (*client, error) {
	return func(addrs []string) (*client, error) {
		var pools []redsyncpool.Pool
		var clients []rueidis.Client
		for _, addr := range addrs {
			rdb, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
			if err != nil {
				return nil, err
			}
			clients, pools = append(clients, rdb), append(pools, redsyncrueidis.NewPool(rueidiscompat.NewAdapter(rdb)))
		}
		return redsyncClient(pools, opts, func() {
			for _, rdb := range clients {
				rdb.Close()
			}
		}), nil
	}
}

func redsyncClient(pools []redsyncpool.Pool, opts []redsync.Option, closePools func()) *client {
	rs := redsync.New(pools...)
	return &client{caller: func() caller { return &redsyncCaller{rs: rs, opts: opts} }, close: closePools}
}

type redsyncCaller struct {
	rs    *redsync.Redsync
	opts  []redsync.Option
	mutex *redsync.Mutex
}

func (c *redsyncCaller) acquire(ctx context.Context, name string) error {
	c.mutex = c.rs.NewMutex(name, c.opts...)
	return c.mutex.LockContext(ctx)
}

// release repeats what a connection's end has kept from a node: redsync cancels the requests of
// Lock that are under way when a majority has answered, and with them a connection that is new.
func (c *redsyncCaller) release() error {
	ok, err := c.mutex.Unlock()
	if errors.As(err, new(*redsync.RedisError)) {
		if ok, err = c.mutex.Unlock(); errors.Is(err, redsync.ErrLockAlreadyExpired) {
			return nil // it was freed on the others
		}
	}
	if err == nil && !ok {
		err = errors.New("redsync: not unlocked")
	}
	return err
}

// bsm/redislock: with the retry strategy of its README.

func openBsm(addrs []string) (*client, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addrs[0]})
	locks, opts := bsm.New(rdb), &bsm.Options{RetryStrategy: bsm.LinearBackoff(100 * time.Millisecond)}
	return &client{
		caller: func() caller { return &bsmCaller{locks: locks, opts: opts} },
		close:  func() { _ = rdb.Close() },
	}, nil
}

type bsmCaller struct {
	locks *bsm.Client
	opts  *bsm.Options
	lock  *bsm.Lock
}

func (c *bsmCaller) acquire(ctx context.Context, name string) (err error) {
	c.lock, err = c.locks.Obtain(ctx, name, ttl, c.opts)
	return err
}

func (c *bsmCaller) release() error { return c.lock.Release(context.Background()) }

// rueidislock: with one key for each lock, as its README recommends for a single Redis, where its
// default is three, and with NoLoopTracking, as it recommends from Redis 7.0.5 on. It has snib's
// TTL and renews as often, so that holds cost the same number of renewals.

func openRueidislock(addrs []string) (*client, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: addrs}, KeyMajority: 1, NoLoopTracking: true,
		KeyValidity: ttl, ExtendInterval: ttl / 3,
	})
	if err != nil {
		return nil, err
	}
	return &client{caller: func() caller { return &rueidislockCaller{locker: locker} }, close: locker.Close}, nil
}

type rueidislockCaller struct {
	locker rueidislock.Locker
	held   context.Context // this library's lock is a context
	cancel context.CancelFunc
}

// acquire gives up after a second, to try again: some acquisitions of this version never end,
// even of locks that nobody holds.
func (c *rueidislockCaller) acquire(ctx context.Context, name string) (err error) {
	ctx, giveUp := context.WithCancel(ctx) // the lock would end with one that has a timeout
	late := time.AfterFunc(time.Second, giveUp)
	if c.held, c.cancel, err = c.locker.WithContext(ctx, name); err == nil && !late.Stop() {
		c.cancel()
		err = context.DeadlineExceeded
	}
	if err != nil {
		giveUp()
	}
	return err
}

func (c *rueidislockCaller) release() error {
	err := c.held.Err()
	c.cancel()
	return err
}

// floor: the two commands that every library must send, over one connection that pipelines. It does
// not wait, and has one token for all locks of a caller.

var free = rueidis.NewLuaScript(`
	if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end
	return 0`)

func openFloor(addrs []string) (*client, error) {
	rdb, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: addrs, PipelineMultiplex: -1})
	if err != nil {
		return nil, err
	}
	callers := 0
	return &client{close: rdb.Close, caller: func() caller {
		callers++
		return &floorCaller{rdb: rdb, name: make([]string, 1), token: []string{"floor-" + strconv.Itoa(callers)}}
	}}, nil
}

type floorCaller struct {
	rdb         rueidis.Client
	name, token []string // one element each
}

func (c *floorCaller) acquire(ctx context.Context, name string) error {
	c.name[0] = name
	return c.rdb.Do(ctx,
		c.rdb.B().Set().Key(name).Value(c.token[0]).Nx().PxMilliseconds(ttl.Milliseconds()).Build()).Error()
}

func (c *floorCaller) release() error {
	n, err := free.Exec(context.Background(), c.rdb, c.name, c.token).AsInt64()
	if err == nil && n == 0 {
		err = errors.New("floor: the lock was lost")
	}
	return err
}

// blpop: a token in a list, the fastest hand-over that a single Redis can do. If a holder dies, the
// token is lost.

var seed = rueidis.NewLuaScript(`
	if redis.call("set", KEYS[1] .. ":seeded", 1, "nx") then redis.call("rpush", KEYS[1], 1) end
	return 1`)

func openBlpop(addrs []string) (*client, error) {
	rdb, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: addrs})
	if err != nil {
		return nil, err
	}
	return &client{caller: func() caller { return &blpopCaller{rdb: rdb} }, close: rdb.Close}, nil
}

type blpopCaller struct {
	rdb  rueidis.Client
	name string
}

func (c *blpopCaller) acquire(ctx context.Context, name string) error {
	if c.name != name {
		if err := seed.Exec(ctx, c.rdb, []string{name}, nil).Error(); err != nil {
			return err
		}
		c.name = name
	}
	return c.rdb.Do(ctx, c.rdb.B().Blpop().Key(name).Timeout(0).Build()).Error()
}

func (c *blpopCaller) release() error {
	return c.rdb.Do(context.Background(), c.rdb.B().Rpush().Key(c.name).Element("1").Build()).Error()
}
