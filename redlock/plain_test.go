package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redlock"
)

// uniqueRequest asks for a lock as the core does if the caller chooses no owner.
func uniqueRequest(name, owner string) driver.Request {
	req := request(name, owner, time.Minute)
	req.UniqueOwner = true
	return req
}

// scripts returns how many calls of scripts a node has served.
func scripts(n *redistest.Node) int {
	calls := n.Calls()
	return calls["evalsha"] + calls["eval"]
}

// TestPlainTakes has a process that is alone. Its cycles need no script but the one that frees, and
// the token that others are shown is right at once.
func TestPlainTakes(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	d, other := open(t, c.servers), open(t, c.servers)
	first := acquire(t, d, uniqueRequest("job", "owner first"))
	last := token(first)
	release(t, first)
	c.awaitKeys(t)
	const cycles, tries = 20, 5
	for try := 1; ; try++ { // a node that answers late is asked again, by a script
		before := make([]int, len(c.nodes))
		for i, n := range c.nodes {
			before[i] = scripts(n)
		}
		for i := range cycles {
			l := acquire(t, d, uniqueRequest("job", fmt.Sprintf("owner %d of %d", i, try)))
			c.awaitKeys(t, "job")
			if token(l) != last+1 {
				t.Errorf("token %d after %d", token(l), last)
			}
			last = token(l)
			release(t, l)
			c.awaitKeys(t)
		}
		var ran []int
		for i, n := range c.nodes {
			ran = append(ran, scripts(n)-before[i])
		}
		// Each cycle has one script, which frees.
		if slices.Min(ran) >= cycles && slices.Max(ran) < 2*cycles {
			break
		}
		if slices.Min(ran) < cycles || try == tries {
			t.Fatalf("the nodes ran %d scripts in %d cycles, want those that free", ran, cycles)
		}
	}

	l := acquire(t, d, uniqueRequest("job", "holder"))
	c.awaitKeys(t, "job")
	checkHeld(t, other, uniqueRequest("job", "other"), "after a plain take")
	check := func(when string) {
		t.Helper()
		st, err := other.Status(t.Context(), "job")
		if err != nil || len(st.Holders) != 1 || st.Holders[0].Token != token(l) || st.Holders[0].Owner != "holder" {
			t.Errorf("%s, Status = %+v, %v, want the holder with the token %d", when, st, err, token(l))
		}
	}
	check("after a plain take")
	if err := renew(t, d, l); err != nil {
		t.Errorf("Renew = %v", err)
	}
	check("after a renewal")
	release(t, l)
	if next := acquire(t, other, uniqueRequest("job", "next")); token(next) <= token(l) {
		t.Errorf("token %d of another process after %d", token(next), token(l))
	}
}

// TestExtendedLeaseIsFreed renews a lease before its release. Its counter then goes on, so a late
// request to extend the lease does not take the lock again.
func TestExtendedLeaseIsFreed(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	d := open(t, c.servers)
	for _, renewed := range []bool{false, true} {
		l := acquire(t, d, uniqueRequest("x", fmt.Sprint("renewed=", renewed)))
		c.awaitKeys(t, "x")
		want := token(l)
		if renewed {
			if err := renew(t, d, l); err != nil {
				t.Fatal(err)
			}
			want++
		}
		release(t, l)
		c.awaitKeys(t)
		for i, n := range c.nodes {
			if got := fmt.Sprint(n.Must("HGET", "snib.redlock", "c1667")); got != fmt.Sprint(want) {
				t.Errorf("renewed=%v: the counter of node %d is %s after the release, want %d", renewed, i, got, want)
			}
		}
	}
}

// A steppedClient carries out one command after the other, and calls before with each. It stands
// for other clients whose commands are served between those of a plain take.
type steppedClient struct {
	rueidis.Client
	before func(words []string)
}

func (c *steppedClient) DoMulti(ctx context.Context, multi ...rueidis.Completed) (all []rueidis.RedisResult) {
	for _, cmd := range multi {
		c.before(slices.Clone(cmd.Commands()))
		all = append(all, c.Do(ctx, cmd))
	}
	return all
}

// clients returns the cluster's nodes with clients, which wrap may change.
func (c *cluster) clients(t testing.TB, wrap func(i int, c rueidis.Client) rueidis.Client) []redlock.Node {
	t.Helper()
	var nodes []redlock.Node
	for i, o := range c.servers {
		o.DisableCache, o.DisableRetry = true, true
		client, err := rueidis.NewClient(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		nodes = append(nodes, redlock.Node{Address: o.InitAddress[0], Client: wrap(i, client)})
	}
	return nodes
}

// openClients is open with clients.
func openClients(t testing.TB, nodes []redlock.Node) (d *redlock.Driver) {
	t.Helper()
	livetest.Await(t, "driver", func() (err error) {
		d, err = redlock.New(t.Context(), nodes)
		return err
	})
	t.Cleanup(func() { d.Close() })
	return d
}

// TestPlainTakeInterrupted lets something happen on all nodes between two commands of a plain take
// that follows a cycle with the token 1 less. The take must not be granted as if nothing had been.
func TestPlainTakeInterrupted(t *testing.T) {
	const counter = "c1667" // that of the name x
	steal := func(n *redistest.Node) {
		n.Must("SET", "x", `thief 9 {"since":1,"owner":"thief"}`, "PX", 60000)
	}
	unadmit := func(n *redistest.Node) { n.Must("HSET", "snib.redlock", "admitted", "an earlier run") }
	for _, tt := range []struct {
		name   string
		before string // the command before which it happens
		do     func(n *redistest.Node)
		want   error  // that of Acquire
		least  uint64 // how much the token must be ahead of the last one
	}{
		{"Nothing", "HINCRBY", func(*redistest.Node) {}, nil, 1},
		{"StolenBeforeCount", "HINCRBY", steal, driver.ErrHeld, 0},
		{"StolenBeforeLook", "MGET", steal, driver.ErrHeld, 0},
		{"GoneBeforeCount", "HINCRBY", func(n *redistest.Node) { n.Must("DEL", "x") }, nil, 2},
		{"GoneBeforeLook", "MGET", func(n *redistest.Node) { n.Must("DEL", "x") }, nil, 2},
		{"CountedByOthers", "SET", func(n *redistest.Node) { n.Must("HINCRBY", "snib.redlock", counter, 5) }, nil, 6},
		{"CounterLost", "SET", func(n *redistest.Node) { n.Must("HDEL", "snib.redlock", counter) }, nil, 1},
		{"OtherCluster", "SET", func(n *redistest.Node) { n.Must("HSET", "snib.redlock", "cluster", "other") }, driver.ErrInvalid, 0},
		{"OtherAddress", "SET", func(n *redistest.Node) { n.Must("HSET", "snib.redlock", "self", "localhost:1") }, driver.ErrInvalid, 0},
		{"Restarted", "HMGET", unadmit, driver.ErrUnavailable, 0},
		{"RestartedBefore", "SET", unadmit, driver.ErrUnavailable, 0},
		{"Wiped", "HINCRBY", func(n *redistest.Node) { n.Must("FLUSHALL") }, driver.ErrUnavailable, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, 3)
			c.init(t)
			var mu sync.Mutex
			armed := map[int]bool{}
			d := openClients(t, c.clients(t, func(i int, client rueidis.Client) rueidis.Client {
				return &steppedClient{client, func(words []string) {
					mu.Lock()
					defer mu.Unlock()
					if armed[i] && words[0] == tt.before && (tt.before != "SET" || words[1] == "x") {
						armed[i] = false
						tt.do(c.nodes[i])
					}
				}}
			}))
			l := acquire(t, d, uniqueRequest("x", "before"))
			last := token(l)
			release(t, l)
			c.awaitKeys(t)
			mu.Lock()
			for i := range c.nodes {
				armed[i] = true
			}
			mu.Unlock()
			l, err := tryAcquire(t, d, uniqueRequest("x", "owner"))
			livetest.Await(t, "plain take on all nodes", func() error { // a majority may have answered before
				mu.Lock()
				defer mu.Unlock()
				if slices.Contains([]bool{armed[0], armed[1], armed[2]}, true) {
					return fmt.Errorf("not all were asked: %v", armed)
				}
				return nil
			})
			switch {
			case !errors.Is(err, tt.want):
				t.Fatalf("Acquire = %v, want %v", err, tt.want)
			case err == nil && token(l) < last+tt.least:
				t.Errorf("token %d after %d, want %d more at least", token(l), last, tt.least)
			}
		})
	}
}

// A lossyClient loses requests and answers, also in the middle of a pipeline, and carries out some
// requests later than others that were sent after them.
type lossyClient struct {
	rueidis.Client
	mu   sync.Mutex
	rng  *rand.Rand
	late sync.WaitGroup
}

// lost returns the results of commands whose connection was lost.
func (c *lossyClient) lost(n int) (all []rueidis.RedisResult) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range n {
		all = append(all, c.Client.Do(ctx, c.B().Ping().Build()))
	}
	return all
}

func (c *lossyClient) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	return c.DoMulti(ctx, cmd)[0]
}

func (c *lossyClient) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	c.mu.Lock()
	fate, pause, part := c.rng.IntN(200), time.Duration(c.rng.IntN(8))*time.Millisecond, c.rng.IntN(len(multi)+1)
	c.mu.Unlock()
	switch {
	case fate < 3:
		return c.lost(len(multi))
	case fate < 7:
		c.Client.DoMulti(ctx, multi[:part]...)
		return c.lost(len(multi))
	case fate < 10: // the rest is late
		c.Client.DoMulti(ctx, multi[:part]...)
		rest := slices.Clone(multi[part:])
		c.late.Go(func() {
			time.Sleep(pause) // others are carried out before
			c.Client.DoMulti(context.Background(), rest...)
		})
		return c.lost(len(multi))
	case fate < 30: // others come between
		all := c.Client.DoMulti(ctx, multi[:part]...)
		time.Sleep(pause / 4) // likewise
		return append(all, c.Client.DoMulti(ctx, multi[part:]...)...)
	}
	return c.Client.DoMulti(ctx, multi...)
}

// TestPathsUnderLoss has three processes whose requests and answers are lost, and are carried out
// in another order than they were sent in. Most rounds are plain takes.
func TestPathsUnderLoss(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	var drivers []*redlock.Driver
	for seed := range uint64(3) {
		d := openClients(t, c.clients(t, func(i int, client rueidis.Client) rueidis.Client {
			lossy := &lossyClient{Client: client, rng: rand.New(rand.NewPCG(seed, uint64(i)))} //nolint:gosec // it is repeatable
			t.Cleanup(lossy.late.Wait)
			return lossy
		}))
		redlock.AlwaysPlain(d)
		drivers = append(drivers, d)
	}
	before := c.nodes[0].Calls()["hincrby"]
	jobtest.Contend(t, drivers, 40, 300*time.Millisecond) // the TTL of a request that is late
	if n := c.nodes[0].Calls()["hincrby"] - before; n < 40 {
		t.Errorf("there were %d plain takes", n)
	}
	for _, name := range []string{"one", "two"} { // which are free, at the latest when that is over
		release(t, acquire(t, open(t, c.servers), uniqueRequest(name, "last "+name)))
	}
}
