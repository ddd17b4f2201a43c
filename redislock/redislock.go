package redislock

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
)

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Inspector = (*Driver)(nil)
)

// Bounds of a TTL, and of what [MaxTTL] may be. Redis counts milliseconds.
const (
	minTTL = 10 * time.Millisecond
	maxTTL = 10 * 365 * 24 * time.Hour
)

// dialTimeout bounds what New and Open do.
const dialTimeout = 5 * time.Second

// silence is how long a connection may answer nothing before it is given up. The client's own default of 10 s outlasts most leases.
const silence = 3 * time.Second

// refresh is how often the Sentinels are asked who is the master, in case that a failover was not heard of.
const refresh = 10 * time.Second

// A Driver takes leases in one Redis, alone, behind Sentinel or in a Cluster. It stands for one process: it has one place in each
// lock's queue.
type Driver struct {
	conn      Conn
	conf      config
	warnings  []string
	info      driver.Info
	sender    sender
	extender  *Script
	renewer   *Script
	looker    *Script
	finder    *Script
	forgetter *Script
	listener  listener

	contended names
	lastTTL   atomic.Pointer[ttlText]

	mu       sync.Mutex
	asks     map[uint64]*ask     // that wait, by their id
	leases   map[uint64]*lease   // that are held, by the id of the request that got them
	doubted  map[*lease]struct{} // which the store is to be asked about
	checking bool                // somebody does that

	life    context.Context //nolint:containedctx // ends with Close
	end     context.CancelFunc
	closing sync.Once
	working sync.WaitGroup // acquisitions, which take back what they asked for
}

// Open connects to a Redis and returns a driver on it, which Close disconnects. The client is set up for locks: one connection for all
// commands, which carries many at a time, and no client-side caching.
//
// A MasterSet in o.Sentinel asks for Sentinel; a Cluster is recognised by itself, and so is a single server, unless [Cluster] or
// [Single] says which it must be. Open fails within o.Dialer.Timeout, 5 s by default, when nothing answers, and when what answers is
// not what was asked for or older than Redis 6.2. The error matches [driver.ErrUnavailable] if another try may succeed.
func Open(o rueidis.ClientOption, opts ...Option) (*Driver, error) {
	conf := configure(opts)
	o.DisableCache = true
	o.PipelineMultiplex = -1
	o.ForceSingleClient = conf.topology == single
	if o.Dialer.Timeout == 0 {
		o.Dialer.Timeout = dialTimeout
	}
	if o.Sentinel.MasterSet != "" && o.Sentinel.TopologyRefreshInterval == 0 {
		o.Sentinel.TopologyRefreshInterval = refresh
	}
	if o.ConnWriteTimeout == 0 {
		o.ConnWriteTimeout = silence
	}
	client, err := rueidis.NewClient(o)
	if err != nil {
		return nil, outOfReach(explain(err, o))
	}
	return start(&rueidisConn{client: client, owned: true}, conf)
}

// New returns a driver on the user's own client, which Close leaves open. It fails when the server does not answer within 5 s,
// or is older than Redis 6.2.
func New(client rueidis.Client, opts ...Option) (*Driver, error) {
	return NewConn(&rueidisConn{client: client}, opts...)
}

// NewConn returns a driver on another client than that of rueidis. Close closes the Conn.
func NewConn(conn Conn, opts ...Option) (*Driver, error) {
	return start(conn, configure(opts))
}

func start(conn Conn, conf config) (*Driver, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	if conn.IsSentinel() {
		conf.floor = max(conf.floor, sentinelFloor)
	}
	err := conf.check()
	var found findings
	if err == nil {
		found, err = survey(ctx, conn, conf)
	}
	if err != nil {
		conn.Close()
		return nil, outOfReach(err)
	}
	d := &Driver{
		conn: conn, conf: conf, warnings: found.warnings,
		extender: newScript(extendScript), renewer: newScript(renewScript), looker: newScript(lookScript), finder: newScript(endlessScript),
		asks: make(map[uint64]*ask), leases: make(map[uint64]*lease),
	}
	d.life, d.end = context.WithCancel(context.Background())
	d.info = describe(conf, found)
	d.sender = sender{
		conn: conn, quick: newScript(quickScript), trade: newScript(tradeScript), lines: make(map[uint16]*line),
		floor: noGrace, max: millis(conf.maxTTL),
	}
	d.sender.idle.New = func() any { return new(flight) }
	d.sender.orders.New = func() any { return new(order) }
	if conf.grace {
		d.sender.floor = millis(conf.floor)
	}
	d.forgetter = newScript(forgetScript)
	d.sender.meta, d.sender.long = func(uint16) string { return "snib.m" }, func(uint16) string { return "snib.g" }
	if conn.IsCluster() {
		d.sender.meta = func(slot uint16) string { return "snib.m:{" + tagOf(slot) + "}" }
		d.sender.long = func(slot uint16) string { return "snib.g:{" + tagOf(slot) + "}" }
	}
	d.listener.init(d, found.sharded)
	return d, nil
}

// isLong reports whether a lease with this TTL outlasts the floor of the grace: the store has to know of it after a restart.
func (d *Driver) isLong(ttl time.Duration) bool { return d.conf.grace && ttl > d.conf.floor }

// slot returns the slot by which calls are put together: those of one server go in one call, and in a Cluster those of one slot.
func (d *Driver) slot(name string) uint16 {
	if d.conn.IsCluster() {
		return slotOf(name)
	}
	return 0
}

// Info implements [driver.Driver].
func (d *Driver) Info() driver.Info { return d.info }

// Warnings says in words which settings of the server, as New found it, break promises: one that evicts keys, or one that acknowledges
// what no replica has. They stand in Info's Assumptions as well.
func (d *Driver) Warnings() []string { return d.warnings }

// Promises is the Info of a driver with these options on servers whose settings break no promise. It asks no server.
func Promises(opts ...Option) driver.Info { return describe(configure(opts), findings{}) }

// describe makes the Info.
func describe(conf config, found findings) driver.Info {
	info := driver.Info{
		Backend: "redis", Tenure: driver.TenureLease, Fencing: driver.FencingClock, Fairness: driver.FairAlways,
		Shared: true, Slots: true, TellsLoss: true, MinTTL: minTTL, MaxTTL: conf.maxTTL,
		Assumptions: []string{
			"the server's wall clock does not jump forward: leases end by it",
			"tokens are ordered across a failover, or a restart that loses memory, if the servers' clocks are right to within half the outage",
			"nobody else changes or deletes the keys of locks",
		},
		Faults: driver.Faults{
			Pause:     "the lock goes on at the end of the lease; what the holder then writes late, the resource must refuse by token",
			Crash:     "the lock is free at the end of the lease",
			Failover:  "nothing is granted until the leases are over that may be forgotten; one longer than the grace that was not replicated can overlap",
			Partition: "a holder that is cut off is told before its lease ends; a master that is cut off goes on granting, unless min-replicas-to-write",
			ClockJump: "the server's clock set forward ends leases early, and holds can overlap; those of clients don't matter",
		},
	}
	if !conf.grace {
		info.Faults.Failover = "a lease that was not replicated or saved is forgotten, and holds can overlap: failover-grace is off"
	}
	if conf.grace {
		info.Assumptions = append(info.Assumptions,
			fmt.Sprintf("after a restart or a failover nothing is granted for %v, or for the longest TTL above that of a lease that the server "+
				"knows to live; a lease with a longer TTL that it has forgotten can overlap", conf.floor))
	} else {
		info.Assumptions = append(info.Assumptions,
			"no server restarts or is promoted that does not know of all leases: failover-grace is off")
	}
	for _, w := range found.warnings {
		info.Assumptions = append(info.Assumptions, "not met: "+w)
	}
	return info
}

// Close implements [driver.Driver]. Acquisitions under way end; Close waits up to a second until their requests are taken back.
func (d *Driver) Close() error {
	d.closing.Do(func() {
		d.mu.Lock() // so that nobody enters meanwhile
		d.end()
		d.mu.Unlock()
		idle := make(chan struct{})
		go func() {
			d.working.Wait()
			close(idle)
		}()
		timer := time.NewTimer(time.Second)
		defer timer.Stop()
		select {
		case <-idle:
		case <-timer.C:
		}
		d.listener.close()
		d.conn.Close()
	})
	return nil
}

// enter counts an acquisition, unless the driver is closed.
func (d *Driver) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life.Err() != nil {
		return false
	}
	d.working.Add(1)
	return true
}

// A HeldError says for how long the present holders' leases last. It matches [driver.ErrHeld].
type HeldError struct {
	Left time.Duration // negative if the key has no end, as a stranger may leave it
}

func (e *HeldError) Error() string {
	if e.Left < 0 {
		return fmt.Sprintf("%v, by a key that never ends", driver.ErrHeld)
	}
	return fmt.Sprintf("%v; its lease lasts another %v", driver.ErrHeld, e.Left)
}

// Is reports whether target is [driver.ErrHeld].
func (e *HeldError) Is(target error) bool { return target == driver.ErrHeld }

// A GraceError says that the server has restarted or was promoted, and for how long it still grants nothing: somebody may hold the lock whom
// it has forgotten. It matches [driver.ErrUnavailable].
type GraceError struct{ Left time.Duration }

func (e *GraceError) Error() string {
	return fmt.Sprintf("the server restarted or was promoted, and grants nothing for another %v (failover-grace)", e.Left)
}

// Is reports whether target is [driver.ErrUnavailable].
func (e *GraceError) Is(target error) bool { return target == driver.ErrUnavailable }

// checkOwner refuses an owner that the keys could not hold as it is.
func checkOwner(owner string) error {
	if !utf8.ValidString(owner) {
		return fmt.Errorf("%w owner %q: it is not valid UTF-8", driver.ErrInvalid, owner)
	}
	if strings.HasPrefix(owner, "snib:") {
		return fmt.Errorf("%w owner %q: in Redis %q at the beginning stands for kinds of locks", driver.ErrInvalid, owner, "snib:")
	}
	return nil
}
