package redlock

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/redlock/internal/quorum"
)

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Inspector = (*Driver)(nil)
)

const (
	// minTTL is the shortest TTL: a few round trips, and room for a clock that is read late.
	minTTL = 100 * time.Millisecond

	// longestTTL bounds MaxTTL: for so long a node is kept out that restarted.
	longestTTL = 24 * time.Hour

	// dialTimeout bounds what it takes to connect to a node.
	dialTimeout = 5 * time.Second

	// forever is longer than a server hangs. A connection on which a lock was asked for is kept until it breaks, because what frees
	// the lock must follow on it.
	forever = 24 * time.Hour
)

// A Node is one of N independent Redis servers, and a client that speaks to it.
type Node struct {
	// Address names the node, and must be the same for all clients: the list of addresses is what they must agree on.
	Address string

	// Client speaks to that server only.
	Client rueidis.Client
}

// A Driver takes leases by a majority of N independent Redis servers.
type Driver struct {
	params  quorum.Params
	conf    config
	cluster string // as nodes store it
	info    driver.Info
	nodes   []*node
	agent   agent
	ears    listener

	nonces   string // begins all nonces of this driver
	attempts atomic.Uint64
	last     [stripes]atomic.Uint64 // the last token that was seen, by stripe

	mu   sync.Mutex
	runs [quorum.MaxNodes]string // the run_id of each node, to tell one server that is listed twice

	life    context.Context //nolint:containedctx // ends when Close begins
	end     context.CancelFunc
	wires   context.Context //nolint:containedctx // ends when nothing is sent any more
	cut     context.CancelFunc
	closing sync.Once
	working sync.WaitGroup // acquisitions, which take back what they asked for
	running sync.WaitGroup // goroutines of nodes, agent and listener
}

// Open connects to N independent Redis servers, an odd number of 3 to 15, and returns a driver on them, which Close disconnects. Each
// is described by its own options, with one address, by which all clients must know it. A client has one connection to each, and one
// more while it waits; what o says of pools, retries and timeouts of commands does not apply.
//
// A majority must answer within 5 s. Open fails with an error that matches [driver.ErrInvalid] if what answers is no master of its
// own, older than Redis 6.2, listed twice, or known to other clients as part of another list or with another MaxTTL. Nodes
// that don't answer are checked when they do.
func Open(servers []rueidis.ClientOption, opts ...Option) (*Driver, error) {
	d, err := dialing(servers, opts)
	if err != nil {
		return nil, err
	}
	return started(d)
}

// dialing prepares a driver that makes its clients itself.
func dialing(servers []rueidis.ClientOption, opts []Option) (*Driver, error) {
	nodes := make([]*node, len(servers))
	for i, o := range servers {
		if len(o.InitAddress) != 1 {
			return nil, fmt.Errorf("%w options of node %d: they have %d addresses, want one", driver.ErrInvalid, i+1, len(o.InitAddress))
		}
		n := &node{address: o.InitAddress[0], calls: context.Background()}
		o = forLocks(o)
		o.DialCtxFn = n.dialFor(o)
		n.dial = func(context.Context) (rueidis.Client, error) { return rueidis.NewClient(o) }
		nodes[i] = n
	}
	return prepare(nodes, opts)
}

// forLocks sets a client up for a node: one connection, no second tries, and none of the client's own timeouts, because a connection that
// was given up would leave behind it locks that nobody frees.
func forLocks(o rueidis.ClientOption) rueidis.ClientOption {
	o.DisableCache, o.DisableRetry, o.ForceSingleClient = true, true, true
	o.PipelineMultiplex = -1
	o.ConnWriteTimeout = forever
	o.ConnLifetime = 0
	if o.Dialer.Timeout == 0 || o.Dialer.Timeout > dialTimeout {
		o.Dialer.Timeout = dialTimeout
	}
	if o.Dialer.KeepAlive == 0 {
		o.Dialer.KeepAlive = 15 * time.Second
	}
	return o
}

// New returns a driver on the user's own clients, which Close leaves open. Otherwise it is as [Open]. A client that gives up on a server
// that hangs (ConnWriteTimeout) may leave locks behind there, until their TTL.
func New(members []Node, opts ...Option) (*Driver, error) {
	nodes := make([]*node, len(members))
	for i, m := range members {
		if m.Client == nil {
			return nil, fmt.Errorf("%w node %q: it has no client", driver.ErrInvalid, m.Address)
		}
		nodes[i] = &node{
			address: m.Address,
			dial:    func(context.Context) (rueidis.Client, error) { return lent{m.Client}, nil },
		}
	}
	d, err := prepare(nodes, opts)
	if err != nil {
		return nil, err
	}
	return started(d)
}

// lent is a client that is not ours to close.
type lent struct{ rueidis.Client }

func (lent) Close() {}

// started begins to work.
func started(d *Driver) (*Driver, error) {
	for _, n := range d.nodes {
		d.running.Go(n.run)
	}
	d.running.Go(d.agent.run)
	if err := d.survey(); err != nil {
		_ = d.Close() // never fails
		return nil, err
	}
	return d, nil
}

// prepare makes a driver, but for what runs.
func prepare(nodes []*node, opts []Option) (*Driver, error) {
	conf, err := configure(opts)
	if err != nil {
		return nil, err
	}
	d := &Driver{params: quorum.Params{Nodes: len(nodes), MaxTTL: conf.maxTTL}, conf: conf, nodes: nodes, nonces: rand.Text()[:16] + "."}
	if err := d.params.Check(); err != nil {
		return nil, err
	}
	slices.SortFunc(nodes, func(a, b *node) int { return cmp.Compare(a.address, b.address) })
	if d.cluster, err = describeCluster(nodes, conf.maxTTL); err != nil {
		return nil, err
	}
	d.info = describe(d.params)
	d.life, d.end = context.WithCancel(context.Background())
	d.wires, d.cut = context.WithCancel(context.Background())
	d.agent.init(d)
	d.ears.init(d)
	for i, n := range nodes {
		n.index, n.cluster, n.timeout = i, d.cluster, conf.timeout
		n.greet, n.notice, n.life, n.wake = d.greet, d.agent.notice, d.wires, make(chan struct{}, 1)
		n.wires = make(map[*wire]bool)
		if n.calls == nil {
			n.calls = d.wires //nolint:fatcontext // it does not grow; a user's client may hang for as long as it likes
		}
	}
	return d, nil
}

// A cluster is what all clients must agree on, as nodes store it.
type cluster struct {
	MaxTTL int64    `json:"maxTTL"` // milliseconds
	Nodes  []string `json:"nodes"`  // in order
}

// describeCluster checks the addresses, which are in order.
func describeCluster(nodes []*node, maxTTL time.Duration) (string, error) {
	c := cluster{MaxTTL: maxTTL.Milliseconds()}
	for i, n := range nodes {
		if _, port, err := net.SplitHostPort(n.address); err != nil || port == "" {
			return "", fmt.Errorf("%w address %q of a node: want host:port", driver.ErrInvalid, n.address)
		}
		if i > 0 && nodes[i-1].address == n.address {
			return "", fmt.Errorf("%w list of nodes: %s is in it twice, and would have two votes", driver.ErrInvalid, n.address)
		}
		c.Nodes = append(c.Nodes, n.address)
	}
	text, err := json.Marshal(c)
	return string(text), err
}

// describe makes the Info.
func describe(p quorum.Params) driver.Info {
	return driver.Info{
		Backend: "redlock", Tenure: driver.TenureLease, Fencing: driver.FencingDurable, Fairness: driver.FairNever,
		MinTTL: minTTL, MaxTTL: p.MaxTTL, TellsLoss: true,
		Assumptions: []string{
			fmt.Sprintf("fewer than %d of the %d servers fail at a time: each is a master of its own, on a machine of its own", p.Quorum(), p.Nodes),
			"no wall clock of a server jumps forward, and clocks run at the same rate to within 1 %: leases end by them; tokens are in order nonetheless",
			"an attempt to take a lock ends within MaxTTL by a clock that runs: a machine that stands still in the middle of one, while a node " +
				"restarts, waits and is admitted, may get a token that is not the greatest",
			"when a majority of the servers has lost its memory, tokens are in order if clocks are right to within half the outage, " +
				"or if the floor that the operator gives is right",
			"nobody else changes or deletes the keys of locks",
		},
		Faults: driver.Faults{
			Pause:     "the lock goes on at the end of the lease; what the holder then writes late, the resource must refuse by token",
			Crash:     "the lock is free at the end of the lease",
			Failover:  "a server that restarted has no vote until it has waited for the longest TTL and has read its counters back from a majority",
			Partition: "who reaches no majority is told before its lease ends, and gets nothing; the rest goes on",
			ClockJump: "a server's clock set forward can let holds overlap if its vote decided; tokens stay in order",
		},
	}
}

// Info implements [driver.Driver].
func (d *Driver) Info() driver.Info { return d.info }

// Close implements [driver.Driver]. Acquisitions under way end; Close waits up to a second until what was asked of the nodes, and above all
// what frees locks, is done; for nodes that are down no longer than NodeTimeout.
func (d *Driver) Close() error {
	d.closing.Do(func() {
		d.mu.Lock() // so that nobody enters meanwhile
		d.end()
		d.mu.Unlock()
		deadline := time.Now().Add(time.Second)
		waitFor(&d.working, deadline)
		d.drain(deadline)
		d.cut()
		for _, n := range d.nodes {
			n.hangUp(driver.ErrClosed)
		}
		d.ears.close()
		waitFor(&d.running, time.Now().Add(time.Second))
	})
	return nil
}

// waitFor waits for a group, until the deadline.
func waitFor(group *sync.WaitGroup, deadline time.Time) {
	idle := make(chan struct{})
	go func() {
		group.Wait()
		close(idle)
	}()
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
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

// nonce returns what no attempt of any process has had, and a space.
func (d *Driver) nonce() string { return d.nonces + strconv.FormatUint(d.attempts.Add(1), 36) + " " }

// hint returns what a token should be at least: the present time in microseconds, and more than the last one that was seen.
func (d *Driver) hint(l *lock) uint64 {
	return driver.NextToken(d.last[l.stripe].Load(), time.Now())
}

// seen remembers the greatest token of a lease.
func (d *Driver) seen(l *lock, token uint64) {
	last := &d.last[l.stripe]
	for was := last.Load(); was < token && !last.CompareAndSwap(was, token); was = last.Load() {
	}
}

// errNoMajority is the root of all errors that say that too few nodes take part.
var errNoMajority = errors.New("there is no majority")
