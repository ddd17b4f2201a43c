package demo

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// redlockNodes are five Redis servers that know nothing of each other, save nothing, and keep the
// lock, and one more with the stock.
type redlockNodes struct {
	director *Director
	nodes    []*redistest.Node
	stock    *redisServer
	snib     bool // the nodes have been told that they are nodes

	broken map[*livetest.Proxy]string // links to nodes, which lead nowhere, and the nodes' addresses
}

const nodeCount = 5

// Redlock returns the nodes of the demo, without a lock, for clients of a pattern.
func (s *Director) Redlock(p pattern.Name) *redlockNodes {
	s.starting("six Redis servers")
	for len(s.nodes) < nodeCount {
		s.nodes = append(s.nodes, redistest.Single(s.t))
	}
	r := &redlockNodes{director: s, nodes: s.nodes, stock: s.Redis(), snib: p != pattern.NaiveRedlock,
		broken: map[*livetest.Proxy]string{}}
	for _, n := range r.nodes {
		n.Must("FLUSHALL")
	}
	if r.snib {
		check("set the nodes up", pattern.InitRedlock(s.ctx, r.urls()))
	}
	s.look = r.look
	s.Begin()
	return r
}

func (r *redlockNodes) urls() []string {
	var urls []string
	for _, n := range r.nodes {
		urls = append(urls, n.URL())
	}
	return urls
}

// Spec returns what a client is to open, before the demo changes it.
func (r *redlockNodes) Spec(name string, p pattern.Name, ttl time.Duration) pattern.Spec {
	return pattern.Spec{
		Pattern: p, URLs: r.urls(), Stock: r.stock.URL(), Client: name, TTL: ttl,
		Route: make(map[string]string),
	}
}

// Client starts a client that can't reach the nodes with the given numbers, before
// [redlockNodes.Heal]. Numbers begin with 1.
func (r *redlockNodes) Client(name string, p pattern.Name, ttl time.Duration, unreachable ...int) *Client {
	const nowhere = "127.0.0.1:1" // a port that no server has
	spec := r.Spec(name, p, ttl)
	for _, number := range unreachable {
		addr := r.nodes[number-1].Addr()
		link := livetest.NewProxy(r.director.t, nowhere)
		spec.Route[addr], r.broken[link] = link.Addr(), addr
	}
	return r.director.start(spec)
}

// Heal lets all clients reach all nodes.
func (r *redlockNodes) Heal() {
	for link, addr := range r.broken {
		link.Redirect(addr)
	}
	r.Say("all clients reach all nodes again")
}

// AwaitConnected waits until a client of snib, which may begin with a majority, is connected to all
// nodes. The observer does not see it.
func (r *redlockNodes) AwaitConnected(c *Client) {
	r.director.quietly(func() {
		r.director.Await(c.Name+" to be connected to all nodes", func() bool {
			c.Acquire()
			all := r.holders() == strings.TrimSpace(strings.Repeat(c.Name+" ", nodeCount))
			c.Release()
			r.AwaitHolders("- - - - -")
			return all
		})
	})
}

// Restart kills a node and starts it again.
func (r *redlockNodes) Restart(number int) {
	n := r.nodes[number-1]
	n.Kill()
	r.Say("† node %d is killed (kill -9)", number)
	n.Restart()
	r.Say("node %d starts again, empty", number)
}

// Jump does to the keys of a node what a jump of its clock does: they end that much earlier.
func (r *redlockNodes) Jump(number int, by time.Duration) {
	n := r.nodes[number-1]
	keys, _ := n.Must("KEYS", "*").([]any)
	for _, key := range keys {
		if left, _ := n.Must("PTTL", key).(int64); left >= 0 {
			n.Must("PEXPIRE", key, left-by.Milliseconds())
		}
	}
	r.Say("the clock of node %d jumps ahead by %s", number, shortly(by))
}

// Say shows a line in the lane of the nodes.
func (r *redlockNodes) Say(format string, args ...any) {
	r.director.Say(r.director.demo.Server, format, args...)
}

// AwaitHolders waits until the nodes keep the lock for the given clients, such as "A A B B -".
func (r *redlockNodes) AwaitHolders(want string) {
	r.director.Await("the nodes to have "+want, func() bool { return r.holders() == want })
}

// AskedInVain reports whether a client of snib has asked a node that nobody had asked before, and
// has freed it again.
func (r *redlockNodes) AskedInVain(number int) bool {
	n := r.nodes[number-1]
	fields, _ := n.Must("HKEYS", "snib.redlock").([]any)
	counted := slices.ContainsFunc(fields, func(field any) bool { // a counter begins with the first request
		return strings.HasPrefix(fmt.Sprint(field), "c") && field != "cluster"
	})
	return counted && r.holder(n) == "-"
}

// look returns who has which node, and the stock.
func (r *redlockNodes) look() []string {
	var all []string
	for i, holder := range strings.Fields(r.holders()) {
		all = append(all, fmt.Sprintf("%d:%s", i+1, holder))
	}
	return append([]string{strings.Join(all, " ")}, r.stock.look()[1])
}

// holders names the holder of each node's key, or "-". "down" is a node that is down, and "out" one
// that takes no part.
func (r *redlockNodes) holders() string {
	var all []string
	for _, n := range r.nodes {
		all = append(all, r.holder(n))
	}
	return strings.Join(all, " ")
}

func (r *redlockNodes) holder(n *redistest.Node) string {
	value, err := n.Do("GET", pattern.LockKey)
	if err != nil {
		return "down"
	}
	if value != nil {
		return clientOf(fmt.Sprint(value))
	}
	if r.snib {
		admitted, err := n.Do("HGET", "snib.redlock", "admitted")
		if err != nil || admitted != n.RunID() {
			return "out"
		}
	}
	return "-"
}

// clientOf returns the client that wrote a value: its name, or the label in the record of snib
// behind two other fields.
func clientOf(value string) string {
	fields := strings.SplitN(value, " ", 3)
	if len(fields) < 3 {
		return value
	}
	var record struct{ Label string }
	_ = json.Unmarshal([]byte(fields[2]), &record) // snib wrote it
	return record.Label
}
