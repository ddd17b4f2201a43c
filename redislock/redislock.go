package redislock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/redislock/rediskit"
)

var _ driver.Driver = (*Driver)(nil)

// Bounds of a TTL, and of [MaxTTL]. Redis counts in milliseconds.
const (
	minTTL = 10 * time.Millisecond
	maxTTL = driver.LongestTTL
)

// dialTimeout bounds New, and by default Open.
const dialTimeout = 5 * time.Second

// ioTimeout is how long a connection may leave a command unanswered before the client gives it
// up. The client's own default of 10 s is longer than most leases.
const ioTimeout = 3 * time.Second

// pingInterval is how long a connection is silent before the client asks whether it lives. After
// that and ioTimeout it gives up a connection that swallows answers, before a lease of 10 s ends.
// The client's own default of 1 s would be most of what an idle process asks.
const pingInterval = 3 * time.Second

// sentinelRefreshInterval is how often the client asks the Sentinels for the master, in case it
// missed a failover.
const sentinelRefreshInterval = 10 * time.Second

// A Driver takes leases in one Redis: a single server, a master behind Sentinel, or a Cluster.
type Driver struct {
	conn Conn
	conf config
	info driver.Info

	sender   sender
	listener listener

	mu        sync.Mutex
	attempts  map[uint64]*attempt // by id
	leases    map[uint64]*lease   // by the id of the request that was granted
	toVerify  map[*lease]struct{} // leases that may have ended: the store will be asked
	verifying bool                // verifyLoop runs

	life        *driverkit.Lifecycle // its calls are those of Acquire
	withdrawals sync.WaitGroup       // which may outlast their calls
	closeOnce   sync.Once
}

// Open connects to Redis and returns a driver that owns the connection: Close closes it. The
// client is configured for locks: one connection, which pipelines all commands, and no
// client-side caching.
//
// If o.Sentinel has a MasterSet, Open uses Sentinel. Otherwise it finds out whether there is a
// Cluster or a single server. Open fails when ctx is done, or within o.Dialer.Timeout, 5 s by
// default, if nothing answers, or if the server is older than Redis 6.2. The error matches
// [driver.ErrUnavailable] if another try may succeed. The driver outlives ctx.
func Open(ctx context.Context, o rueidis.ClientOption, opts ...Option) (*Driver, error) {
	conf, err := configure(opts)
	if err != nil {
		return nil, err
	}
	o.DisableCache = true
	o.PipelineMultiplex = -1
	if o.Dialer.Timeout == 0 {
		o.Dialer.Timeout = dialTimeout
	}
	if o.Sentinel.MasterSet != "" && o.Sentinel.TopologyRefreshInterval == 0 {
		o.Sentinel.TopologyRefreshInterval = sentinelRefreshInterval
	}
	if o.Dialer.KeepAlive == 0 {
		o.Dialer.KeepAlive = pingInterval
	}
	if o.ConnWriteTimeout == 0 {
		o.ConnWriteTimeout = ioTimeout
	}
	client, err := newClient(ctx, o)
	if err != nil {
		return nil, err
	}
	return start(ctx, &rueidisConn{client: client, own: true}, conf)
}

// newClient makes a client, which is connected. If ctx is done before, the dialer's timeout ends
// the tries to connect in the background.
func newClient(ctx context.Context, o rueidis.ClientOption) (rueidis.Client, error) {
	type result struct {
		client rueidis.Client
		err    error
	}
	made := make(chan result, 1)
	go func() {
		client, err := rueidis.NewClient(o)
		made <- result{client, err}
	}()
	select {
	case r := <-made:
		if r.err != nil {
			return nil, connectError(explain(r.err, o))
		}
		return r.client, nil
	case <-ctx.Done():
		go func() {
			if r := <-made; r.err == nil {
				r.client.Close()
			}
		}()
		return nil, openError(ctx)
	}
}

// openError is the error of Open or New whose context is done.
func openError(ctx context.Context) error {
	return &unreachableError{fmt.Errorf("no answer from Redis yet: %w", context.Cause(ctx))}
}

// New returns a driver on the user's own client, which Close leaves open. It fails if the server
// does not answer before ctx is done or 5 s are over, or is older than Redis 6.2. The error
// matches [driver.ErrUnavailable] if another try may succeed. The driver outlives ctx.
func New(ctx context.Context, client rueidis.Client, opts ...Option) (*Driver, error) {
	return NewConn(ctx, &rueidisConn{client: client}, opts...)
}

// NewConn is [New] for a client other than rueidis. Close closes the Conn.
func NewConn(ctx context.Context, conn Conn, opts ...Option) (*Driver, error) {
	conf, err := configure(opts)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return start(ctx, conn, conf)
}

func start(ctx context.Context, conn Conn, conf config) (*Driver, error) {
	if conn.IsSentinel() {
		conf.floor = max(conf.floor, sentinelFloor)
	}
	found, err := probe(ctx, conn, conf)
	if err != nil {
		conn.Close()
		return nil, err
	}
	d := &Driver{
		conn: conn, conf: conf,
		attempts: make(map[uint64]*attempt), leases: make(map[uint64]*lease),
		toVerify: make(map[*lease]struct{}), life: driverkit.NewLifecycle(),
	}
	d.info = newInfo(conf, found)
	d.sender = sender{
		conn: conn, queues: make(map[uint16]*slotQueue),
		batches: driverkit.SharedTimeout{Least: batchTimeout, Most: batchTimeout * 5 / 4},
		floor:   noGrace, maxTTL: rediskit.Millis(conf.maxTTL), durable: conf.durable,
	}
	if conf.grace {
		d.sender.floor = rediskit.Millis(conf.floor)
	}
	ofStore := func(key string) func(uint16) string {
		if conn.IsCluster() {
			return func(slot uint16) string { return key + ":{" + tagOf(slot) + "}" }
		}
		return func(uint16) string { return key }
	}
	d.sender.metaKey, d.sender.longLeasesKey = ofStore(conf.namespace.own("m")), ofStore(conf.namespace.own("g"))
	d.listener.init(d, found.sharded)
	return d, nil
}

// slot returns the slot of a key, by which requests are batched. Requests for one slot of a Cluster
// share a batch; on a single server all requests do.
func (d *Driver) slot(key string) uint16 {
	if d.conn.IsCluster() {
		return slotOf(key)
	}
	return 0
}

// Info implements [driver.Driver]. Its Unmet names the settings of the servers that break promises,
// as New found them, such as a policy that evicts keys. The zero Driver has the Info of the default
// options on servers without such settings.
func (d *Driver) Info() driver.Info {
	if d.conn == nil {
		conf, _ := configure(nil) // the defaults are valid
		return newInfo(conf, findings{})
	}
	return d.info
}

// newInfo makes the driver's Info.
func newInfo(conf config, found findings) driver.Info {
	info := driver.Info{
		Backend: "redis", Tenure: driver.TenureLease, Fencing: driver.FencingClock, Fair: true,
		Shared: true, Slots: true, TellsLoss: true, TellsWanted: true, MinTTL: minTTL, MaxTTL: conf.maxTTL,
		Assumptions: []string{
			"the server's wall clock does not jump forward: leases end by it",
			"tokens are ordered across a failover, or a restart that loses memory, if the servers' clocks are right to " +
				"within half the outage",
			"nobody else changes or deletes the keys of locks",
		},
	}
	switch {
	case conf.durable:
		info.Fencing = driver.FencingDurable
		info.Assumptions = append(info.Assumptions,
			"the server starts from the append-only file that it wrote, fsync is honest, and no replica takes the server's place",
			"all processes that share locks have durable=aof",
			fmt.Sprintf("after a restart without its memory the server grants nothing for %v, or for the requested TTL up "+
				"to a minute; a lease with a longer TTL can overlap then", conf.floor))
	case conf.grace:
		info.Assumptions = append(info.Assumptions,
			fmt.Sprintf("after a restart or a failover nothing is granted for %v, or for the longest TTL above that of a "+
				"lease that the server "+
				"knows to live; a lease with a longer TTL that it has forgotten can overlap", conf.floor))
	default:
		info.Assumptions = append(info.Assumptions,
			"no server restarts or is promoted that does not know of all leases: failover-grace is off")
	}
	info.Unmet = found.warnings
	return info
}

// Close implements [driver.Driver]. It ends all calls of Acquire, and waits up to a second
// until their requests are withdrawn.
func (d *Driver) Close() error {
	d.closeOnce.Do(func() {
		rediskit.WaitUntil(time.Now().Add(time.Second), func() {
			d.life.End(nil)
			d.withdrawals.Wait()
		})
		d.conn.Close()
	})
	return nil
}

// A HeldError says how long the present holders' leases last. It matches [driver.ErrHeld].
type HeldError = rediskit.HeldError

// A GraceError says that the server restarted or was promoted, and how long it still grants
// nothing, because it may have forgotten a holder. It matches [driver.ErrUnavailable].
type GraceError struct{ Left time.Duration }

func (e *GraceError) Error() string {
	return fmt.Sprintf("the server restarted or was promoted, and grants nothing for another %v (failover-grace)", e.Left)
}

// Is reports whether target is [driver.ErrUnavailable].
func (e *GraceError) Is(target error) bool { return target == driver.ErrUnavailable }
