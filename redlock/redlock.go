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
	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/redislock/rediskit"
	"github.com/sniblock/snib/redlock/internal/quorum"
)

var _ driver.Driver = (*Driver)(nil)

const (
	// minTTL is the shortest TTL. It leaves room for a few round trips and for a clock
	// that is read late.
	minTTL = 100 * time.Millisecond

	// longestTTL is the upper limit of MaxTTL, which is how long a restarted node
	// stays excluded.
	longestTTL = 24 * time.Hour

	// dialTimeout is how long connecting to a node may take.
	dialTimeout = 5 * time.Second

	// forever is longer than any server hangs. A connection that carried a request for a lock
	// is kept until it breaks, because the command that frees the lock must follow on it.
	forever = 24 * time.Hour
)

// A Driver keeps leases on a majority of N independent Redis servers.
type Driver struct {
	params   quorum.Params
	conf     config
	cluster  string // as the nodes store it
	nodes    []*node
	agents   sync.WaitGroup
	listener listener

	nonceID    string // the prefix of all nonces of this driver
	rounds     atomic.Uint64
	lastTokens [stripes]atomic.Uint64 // the last token seen, by stripe

	mu sync.Mutex

	// runIDs has the run_id of each node, to detect a server that is listed twice.
	runIDs [quorum.MaxNodes]string

	life        *driverkit.Lifecycle // its calls are those of Acquire
	sendCtx     context.Context      //nolint:containedctx // ends when nothing is sent any more
	stopSending context.CancelFunc
	closeOnce   sync.Once
	background  sync.WaitGroup // the goroutines of nodes and listener
}

// Open connects to N independent Redis servers, an odd number from 3 to 15, and returns a
// driver for them. Close disconnects it. Each server has its own options, with one address,
// by which all clients must know it. The driver opens one connection to each server, and
// one more while somebody waits or holds a lock. Its settings for connection pools, retries and
// command timeouts do not apply.
//
// A majority must answer before ctx is done and 5 s are over. The driver outlives ctx. The error of
// Open matches [driver.ErrUnavailable] if another try may succeed, and [driver.ErrInvalid] if a
// server is not an independent master, is older than Redis 6.2, is listed twice, or belongs to
// another list of nodes or to a cluster with another MaxTTL. A node that does not answer is checked
// once it does.
func Open(ctx context.Context, servers []rueidis.ClientOption, opts ...Option) (*Driver, error) {
	d, err := newDialingDriver(servers, opts)
	if err != nil {
		return nil, err
	}
	return start(ctx, d)
}

// newDialingDriver builds a driver that creates its own clients.
func newDialingDriver(servers []rueidis.ClientOption, opts []Option) (*Driver, error) {
	nodes := make([]*node, len(servers))
	for i, o := range servers {
		if len(o.InitAddress) != 1 {
			return nil, driver.Invalidf("options of node %d: they have %d addresses, want one", i+1, len(o.InitAddress))
		}
		n := &node{address: o.InitAddress[0]}
		o = nodeOptions(o)
		o.DialCtxFn = n.dialFor(o)
		n.dial = func(context.Context) (rueidis.Client, error) { return rueidis.NewClient(o) }
		nodes[i] = n
	}
	return newDriver(nodes, opts)
}

// nodeOptions adapts a client's options for a node: one connection, no retries, and none
// of the client's own timeouts. A connection that the client gave up could leave locks
// that nobody frees.
func nodeOptions(o rueidis.ClientOption) rueidis.ClientOption {
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

// start starts the driver's goroutines and waits until a majority of the nodes answers.
func start(ctx context.Context, d *Driver) (*Driver, error) {
	for _, n := range d.nodes {
		d.background.Go(n.run)
		d.agents.Go((&agent{d, n, d.params.Admission()}).run)
	}
	if err := d.awaitMajority(ctx); err != nil {
		_ = d.Close() // never fails
		return nil, err
	}
	return d, nil
}

// newDriver builds a driver without starting its goroutines.
func newDriver(nodes []*node, opts []Option) (*Driver, error) {
	conf, err := configure(opts)
	if err != nil {
		return nil, err
	}
	d := &Driver{
		params: quorum.Params{Nodes: len(nodes), MaxTTL: conf.maxTTL}, conf: conf, nodes: nodes,
		nonceID: rand.Text()[:16] + ".", life: driverkit.NewLifecycle(),
	}
	if err := d.params.Check(); err != nil {
		return nil, err
	}
	slices.SortFunc(nodes, func(a, b *node) int { return cmp.Compare(a.address, b.address) })
	if d.cluster, err = encodeCluster(nodes, conf.maxTTL); err != nil {
		return nil, err
	}
	d.sendCtx, d.stopSending = context.WithCancel(context.Background())
	d.listener.init(d)
	for i, n := range nodes {
		n.index, n.cluster, n.timeout = i, d.cluster, conf.timeout
		n.handshake, n.ctx = d.handshake, d.sendCtx
		n.wakeup, n.toCheck = make(chan struct{}, 1), make(chan struct{}, 1)
		n.conns = make(map[*trackedConn]bool)
	}
	return d, nil
}

// A cluster is what all clients must agree on, in the form that the nodes store.
type cluster struct {
	MaxTTL int64    `json:"maxTTL"` // milliseconds
	Nodes  []string `json:"nodes"`  // sorted
}

// encodeCluster checks the addresses of the nodes, which are sorted, and returns the
// cluster as JSON.
func encodeCluster(nodes []*node, maxTTL time.Duration) (string, error) {
	c := cluster{MaxTTL: maxTTL.Milliseconds()}
	for i, n := range nodes {
		if _, port, err := net.SplitHostPort(n.address); err != nil || port == "" {
			return "", driver.Invalidf("address %q of a node: want host:port", n.address)
		}
		if i > 0 && nodes[i-1].address == n.address {
			return "", driver.Invalidf("list of nodes: %s is in it twice, and would have two votes", n.address)
		}
		c.Nodes = append(c.Nodes, n.address)
	}
	text, err := json.Marshal(c)
	return string(text), err
}

// infoFor returns what a driver with these parameters promises.
func infoFor(p quorum.Params) driver.Info {
	return driver.Info{
		Backend: "redlock", Tenure: driver.TenureLease, Fencing: driver.FencingDurable,
		MinTTL: minTTL, MaxTTL: p.MaxTTL, TellsLoss: true,
		Assumptions: []string{
			fmt.Sprintf("fewer than %d of the %d servers fail at a time: each is a master of its own, on a machine of its own",
				p.Quorum(), p.Nodes),
			"no wall clock of a server jumps forward, and clocks run at the same rate to within 1 %: leases end by them; " +
				"tokens are in order nonetheless",
			"an attempt to take a lock ends within MaxTTL by a clock that runs: a machine that stands still in the middle " +
				"of one, while a node restarts, waits and is admitted, may get a token that is not the greatest",
			"when a majority of the servers has lost its memory, tokens are in order if clocks are right to within half " +
				"the outage, or if the floor that the operator gives is right",
			"nobody else changes or deletes the keys of locks",
		},
	}
}

// Info implements [driver.Driver]. The zero Driver has the Info of five servers and the default
// options.
func (d *Driver) Info() driver.Info {
	if d.nodes == nil {
		conf, _ := configure(nil) // the defaults are valid
		return infoFor(quorum.Params{Nodes: 5, MaxTTL: conf.maxTTL})
	}
	return infoFor(d.params)
}

// Close implements [driver.Driver]. It cancels the acquisitions under way and waits up to a
// second for them to clean up. Within that second it gives a majority of the nodes up to
// NodeTimeout to carry out the commands that are queued, above all those that free locks, and 50 ms
// more to the others; it does not wait for a node whose connection is broken. It also waits up to
// 50 ms for a step towards the admission of a node, because others may live as briefly. Then it
// stops the driver's goroutines, and waits up to another second for them.
func (d *Driver) Close() error {
	d.closeOnce.Do(func() {
		deadline := time.Now().Add(time.Second)
		rediskit.WaitUntil(deadline, func() { d.life.End(nil) })
		d.drain(deadline)
		rediskit.WaitUntil(time.Now().Add(minorityTimeout), d.agents.Wait) // for their steps under way
		d.stopSending()
		for _, n := range d.nodes {
			n.disconnect(driver.ErrClosed)
		}
		d.listener.close()
		rediskit.WaitUntil(time.Now().Add(time.Second), func() { d.agents.Wait(); d.background.Wait() })
	})
	return nil
}

// newNonce returns a nonce, with a space at its end, that no round of any process has used.
func (d *Driver) newNonce() string { return d.nonceID + strconv.FormatUint(d.rounds.Add(1), 36) + " " }

// tokenHint returns the lower limit for a new token: the present time in microseconds, or more
// if a greater token has been seen.
func (d *Driver) tokenHint(l *lock) uint64 {
	return driver.NextToken(d.lastTokens[l.stripe].Load(), time.Now())
}

// noteToken remembers the greatest token of a lease.
func (d *Driver) noteToken(l *lock, token uint64) {
	last := &d.lastTokens[l.stripe]
	for was := last.Load(); was < token && !last.CompareAndSwap(was, token); was = last.Load() {
	}
}

// allNodes returns the set of all nodes.
func (d *Driver) allNodes() quorum.Set { return 1<<len(d.nodes) - 1 }

// errNoMajority matches all errors that say that too few nodes take part.
var errNoMajority = errors.New("there is no majority")
