package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/redislock"
)

// A peer is a row of a table: a lock library or a variant of one, configured as its
// documentation says.
type peer struct {
	name   string
	about  string // what the row is, in a few words
	role   role
	beside string // the row that it is compared with; "" for the best library
	local  bool   // it uses no network
	// goroutines is the number of goroutines, if it is not that of the load.
	goroutines int
	// start starts the peer's own store, which stays until the end of the scenario. It is nil if the
	// peer runs on the store of the scenario.
	start func(testing.TB) *store
	open  func(setup) (*client, error)
}

// A role says how a row is compared.
type role int

const (
	library   role = iota // snib is compared with the best of these
	ours                  // it is compared with others
	floor                 // the least that a lock costs: not a usable lock, or one that promises less
	reference             // it is only shown
)

// A setup is the configuration of a peer for a run.
type setup struct {
	addrs []string      // of the servers, as host:port, or the path of a file
	ttl   time.Duration // 0: the library's default, or defaultTTL if it has none

	failFast bool // a setting of redsync
}

// addr returns the address of the only server.
func (s setup) addr() string { return s.addrs[0] }

const defaultTTL = 10 * time.Second

// A client is a peer that is connected to the server. Each process has one.
type client struct {
	caller func() caller
	// Renews each lock once; nil if the library renews by itself.
	renew func(ctx context.Context, held []caller) error
	close func()
	// A lock ends with the context of its acquisition.
	boundToContext bool
}

// A caller acquires and releases one lock at a time, for one goroutine. It stores the lock in
// between, so that the harness allocates nothing for it.
type caller interface {
	acquire(ctx context.Context, key string) error
	release() error // returns an error if the lock was lost
}

// redisPeers returns snib and the lock libraries for one Redis.
func redisPeers() []peer { return redisPeersBeside("") }

// redisPeersBeside returns redisPeers, with snib compared with another row than the best library.
func redisPeersBeside(beside string) []peer {
	return []peer{
		{name: snibRow, role: ours, beside: beside, open: openSnib, about: "snib with its default options"},
		{name: "redsync-go-redis", open: openRedsync, about: "redsync over go-redis, with its default options"},
		{name: "redsync-rueidis", open: openRedsyncRueidis, about: "redsync over rueidis"},
		{name: "bsm-redislock", open: openBsm, about: "bsm/redislock, with the retry strategy of its README"},
		{name: "rueidislock", open: openRueidislock(0), about: "rueidislock, with its default of three keys for each lock"},
		{name: "rueidislock-m1", open: openRueidislock(1), about: "rueidislock with KeyMajority 1, which its README recommends for a single Redis"},
	}
}

func memoryPeer() peer {
	return peer{name: "snib-memory", role: reference, local: true, open: openMemory, about: "snib's own code, with locks in the memory of the process"}
}

func floorPeer() peer {
	return peer{name: "floor", role: floor, open: openFloor, about: "the two commands that every library must send: SET NX PX, and a script that compares and deletes"}
}

// snib on Redis, with one Locker per process.

func openSnib(s setup) (*client, error) { return openRedislock(s) }

func openRedislock(s setup, opts ...snib.Option) (*client, error) {
	d, err := redislock.Open(context.Background(), rueidis.ClientOption{InitAddress: s.addrs})
	if err != nil {
		return nil, err
	}
	return snibClient(s, d, opts...)
}

// snib on memlock: only the core.

func openMemory(s setup) (*client, error) { return snibClient(s, memlock.New()) }

func snibClient(s setup, d driver.Driver, opts ...snib.Option) (*client, error) {
	if s.ttl > 0 {
		opts = append(opts, snib.TTL(max(s.ttl, d.Info().SessionTTL)))
	}
	locker, err := snib.New(d, opts...)
	if err != nil {
		return nil, err
	}
	return &client{
		caller: func() caller { return &snibCaller{locker: locker} },
		close:  func() { _ = locker.Close() },
	}, nil
}

type snibCaller struct {
	locker *snib.Locker
	lock   *snib.Lock
}

func (c *snibCaller) acquire(ctx context.Context, key string) (err error) {
	c.lock, err = c.locker.Acquire(ctx, key)
	return err
}

func (c *snibCaller) release() error { return c.lock.Release() }

// redsync: with its defaults, and a new Mutex for each acquisition.

func openRedsync(s setup) (*client, error) {
	var pools []redsyncpool.Pool
	var clients []*redis.Client
	for _, addr := range s.addrs {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		clients, pools = append(clients, rdb), append(pools, redsyncgoredis.NewPool(rdb))
	}
	return redsyncClient(s, pools, func() {
		for _, rdb := range clients {
			_ = rdb.Close()
		}
	}), nil
}

func openRedsyncRueidis(s setup) (*client, error) {
	var pools []redsyncpool.Pool
	var clients []rueidis.Client
	for _, addr := range s.addrs {
		rdb, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
		if err != nil {
			return nil, err
		}
		clients, pools = append(clients, rdb), append(pools, redsyncrueidis.NewPool(rueidiscompat.NewAdapter(rdb)))
	}
	return redsyncClient(s, pools, func() {
		for _, rdb := range clients {
			rdb.Close()
		}
	}), nil
}

// withFailFast returns open with redsync's fail-fast option: a majority of the
// answers is enough.
func withFailFast(open func(setup) (*client, error)) func(setup) (*client, error) {
	return func(s setup) (*client, error) {
		s.failFast = true
		return open(s)
	}
}

func redsyncClient(s setup, pools []redsyncpool.Pool, closePools func()) *client {
	rs := redsync.New(pools...)
	var opts []redsync.Option
	if s.ttl > 0 {
		opts = append(opts, redsync.WithExpiry(s.ttl))
	}
	if s.failFast {
		opts = append(opts, redsync.WithFailFast(true))
	}
	return &client{
		caller: func() caller { return &redsyncCaller{rs: rs, opts: opts} },
		renew: eachOf(func(ctx context.Context, c *redsyncCaller) error {
			_, err := c.mutex.ExtendContext(ctx)
			return err
		}),
		close: closePools,
	}
}

type redsyncCaller struct {
	rs    *redsync.Redsync
	opts  []redsync.Option
	mutex *redsync.Mutex
}

func (c *redsyncCaller) acquire(ctx context.Context, key string) error {
	c.mutex = c.rs.NewMutex(key, c.opts...)
	return c.mutex.LockContext(ctx)
}

func (c *redsyncCaller) release() error {
	ok, err := c.mutex.Unlock()
	if err == nil && !ok {
		err = errors.New("redsync: not unlocked")
	}
	return err
}

// bsm/redislock: the retry strategy of its README.

func openBsm(s setup) (*client, error) {
	rdb := redis.NewClient(&redis.Options{Addr: s.addr()})
	b := &bsmClient{
		client: bsm.New(rdb),
		ttl:    orDefault(s.ttl),
		opts:   &bsm.Options{RetryStrategy: bsm.LinearBackoff(100 * time.Millisecond)},
	}
	return &client{
		caller: func() caller { return &bsmCaller{bsmClient: b} },
		renew: eachOf(func(ctx context.Context, c *bsmCaller) error {
			return c.lock.Refresh(ctx, c.ttl, nil)
		}),
		close: func() { _ = rdb.Close() },
	}, nil
}

type bsmClient struct {
	client *bsm.Client
	ttl    time.Duration
	opts   *bsm.Options
}

type bsmCaller struct {
	*bsmClient
	lock *bsm.Lock
}

func (c *bsmCaller) acquire(ctx context.Context, key string) (err error) {
	c.lock, err = c.client.Obtain(ctx, key, c.ttl, c.opts)
	return err
}

func (c *bsmCaller) release() error { return c.lock.Release(context.Background()) }

// rueidislock: with its defaults, or with one key for each lock, as its README recommends for a
// single Redis. The README says to set NoLoopTracking from Redis 7.0.5 on.

func openRueidislock(majority int32) func(setup) (*client, error) {
	return func(s setup) (*client, error) {
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption:   rueidis.ClientOption{InitAddress: s.addrs},
			KeyMajority:    majority, // 0 means the default, also in the next two fields
			KeyValidity:    s.ttl,
			ExtendInterval: s.ttl / 3, // as often as the other libraries
			NoLoopTracking: true,
		})
		if err != nil {
			return nil, err
		}
		return &client{
			caller:         func() caller { return &rueidislockCaller{locker: locker} },
			close:          locker.Close,
			boundToContext: true,
		}, nil
	}
}

type rueidislockCaller struct {
	locker rueidislock.Locker
	held   context.Context // this library's lock is a context
	cancel context.CancelFunc
}

func (c *rueidislockCaller) acquire(ctx context.Context, key string) (err error) {
	c.held, c.cancel, err = c.locker.WithContext(ctx, key)
	return err
}

func (c *rueidislockCaller) release() error {
	err := c.held.Err()
	c.cancel()
	return err
}

// floor: the two commands that every library must send, over one auto-pipelining connection. It
// does not wait, and it renews 250 locks with one script, which checks the owners.

func openFloor(s setup) (*client, error) {
	rdb, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: s.addrs, PipelineMultiplex: -1})
	if err != nil {
		return nil, err
	}
	f := &floorClient{
		rdb: rdb,
		ttl: orDefault(s.ttl).Milliseconds(),
		free: rueidis.NewLuaScript(`
			if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end
			return 0`),
		extend: rueidis.NewLuaScript(`
			local n = 0
			for i, key in ipairs(KEYS) do
				if redis.call("get", key) == ARGV[i + 1] then n = n + redis.call("pexpire", key, ARGV[1]) end
			end
			return n`),
	}
	callers := 0
	return &client{
		caller: func() caller {
			callers++
			return &floorCaller{floorClient: f, key: make([]string, 1), token: []string{"floor-" + strconv.Itoa(callers)}}
		},
		renew: f.renew,
		close: rdb.Close,
	}, nil
}

type floorClient struct {
	rdb          rueidis.Client
	ttl          int64 // in ms
	free, extend *rueidis.Lua
}

func (f *floorClient) renew(ctx context.Context, held []caller) error {
	for batch := range slices.Chunk(held, 250) {
		keys, args := make([]string, len(batch)), []string{strconv.FormatInt(f.ttl, 10)}
		for i, c := range batch {
			keys[i] = c.(*floorCaller).key[0]
			args = append(args, c.(*floorCaller).token[0])
		}
		n, err := f.extend.Exec(ctx, f.rdb, keys, args).AsInt64()
		if err == nil && int(n) < len(batch) {
			err = fmt.Errorf("floor: %d of %d locks were lost", len(batch)-int(n), len(batch))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// A floorCaller has one token for all its locks and reuses its slices: it need not be safe.
type floorCaller struct {
	*floorClient
	key, token []string // one element each
}

func (c *floorCaller) acquire(ctx context.Context, key string) error {
	c.key[0] = key
	return c.rdb.Do(ctx, c.rdb.B().Set().Key(key).Value(c.token[0]).Nx().PxMilliseconds(c.ttl).Build()).Error()
}

func (c *floorCaller) release() error {
	n, err := c.free.Exec(context.Background(), c.rdb, c.key, c.token).AsInt64()
	if err == nil && n == 0 {
		err = errors.New("floor: the lock was lost")
	}
	return err
}

// blpop: a token in a list, the fastest hand-over that a single Redis can do. If a
// holder dies, the token is lost.

func openBlpop(s setup) (*client, error) {
	rdb, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: s.addrs})
	if err != nil {
		return nil, err
	}
	seed := rueidis.NewLuaScript(`
		if redis.call("set", KEYS[1] .. ":seeded", 1, "nx") then redis.call("rpush", KEYS[1], 1) end
		return 1`)
	return &client{
		caller: func() caller { return &blpopCaller{rdb: rdb, seed: seed} },
		close:  rdb.Close,
	}, nil
}

type blpopCaller struct {
	rdb  rueidis.Client
	seed *rueidis.Lua
	key  string
}

func (c *blpopCaller) acquire(ctx context.Context, key string) error {
	if c.key != key {
		if err := c.seed.Exec(ctx, c.rdb, []string{key}, nil).Error(); err != nil {
			return err
		}
		c.key = key
	}
	return c.rdb.Do(ctx, c.rdb.B().Blpop().Key(key).Timeout(0).Build()).Error()
}

func (c *blpopCaller) release() error {
	return c.rdb.Do(context.Background(), c.rdb.B().Rpush().Key(c.key).Element("1").Build()).Error()
}

// eachOf returns a function that renews one lock after the other, as a program must do
// if its library has no automatic renewal.
func eachOf[C caller](renew func(context.Context, C) error) func(context.Context, []caller) error {
	return func(ctx context.Context, held []caller) error {
		for _, c := range held {
			if err := renew(ctx, c.(C)); err != nil {
				return err
			}
		}
		return nil
	}
}

func orDefault(ttl time.Duration) time.Duration {
	if ttl > 0 {
		return ttl
	}
	return defaultTTL
}
