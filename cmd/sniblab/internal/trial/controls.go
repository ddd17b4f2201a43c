package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/judge"
	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
	"github.com/sniblock/snib/cmd/sniblab/internal/target"
)

// Controls returns the broken patterns, some of which run before the targets. command returns how
// to start the process that calls [ServePattern] with a name.
func Controls(command func(name string) []string) []Target {
	var all []Target
	for _, e := range controls() {
		c := e.Target
		c.Store, c.Command = cmp.Or(c.Store, Redis), command(c.Name)
		all = append(all, c)
	}
	return all
}

// ControlsFor returns those of all controls that vouch for a run of some targets: the patterns on
// Redis, and those on the stores of the targets.
func ControlsFor(all, targets []Target) []Target {
	return slices.DeleteFunc(slices.Clone(all), func(c Target) bool {
		return c.Store != Redis && !slices.ContainsFunc(targets, func(o Target) bool { return o.Store == c.Store })
	})
}

// A control is a broken pattern of package pattern.
type control struct {
	Target
	pattern pattern.Name
	ahead   time.Duration // of the clock of client B
	ttl     time.Duration // in place of the one that the judge asks for, or 0
}

func controls() []control {
	const (
		page     = "docs/from-setnx.md#"
		rows     = page + "dead-row"
		setnx    = "https://redis.io/commands/setnx/"
		redlock  = "https://redis.io/docs/latest/develop/use/patterns/distributed-locks/"
		fencing  = "https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html"
		shedLock = "https://github.com/lukas-krecan/ShedLock"
		zk       = "https://zookeeper.apache.org/doc/r3.4.14/recipes.html"
		etcdLock = "https://etcd.io/docs/v3.2/dev-guide/api_concurrency_reference_v3/"
		pooling  = "https://www.pgbouncer.org/features.html"
	)
	return []control{
		{Target{Name: "no-expiry", Title: "SETNX without a TTL", Defect: "A holder that dies never frees its key.",
			Page: page + "setnx-expire", Source: setnx, Faults: []string{"kill"}, Want: judge.Blocked}, pattern.NoExpiry, 0, 0},
		{Target{Name: "setnx-expire", Title: "SETNX, then EXPIRE", Defect: "A client that dies between the two commands leaves a key without an end.",
			Page: page + "setnx-expire", Source: setnx, Faults: []string{"crash"}, Want: judge.Blocked}, pattern.SetnxExpire, 0, 0},
		{Target{Name: "get-set", Title: "GET, then SET", Defect: "Two clients see that the lock is free, and both take it.",
			Page: page + "get-set", Source: setnx, Faults: []string{"delay"}, Want: judge.Overlap}, pattern.GetSet, 0, 0},
		{Target{Name: "del-anothers", Title: "SET NX PX, then DEL", Defect: "A client that releases late deletes the lock of the next holder, and a third one gets in.",
			Page: page + "del-anothers", Source: redlock, Faults: []string{"slow-release"}, Want: judge.Overlap}, pattern.Del, 0, 0},
		{Target{Name: "get-del", Title: "SET NX PX, then GET and DEL", Defect: "The lock changes hands between the look and the DEL.",
			Page: page + "get-del", Source: redlock, Faults: []string{"slow-release"}, Want: judge.Overlap}, pattern.GetDel, 0, 0},
		{Target{Name: "getset-timestamp", Title: "GETSET of a time", Defect: "The clock of one client is ahead by two TTLs, so it takes over locks that are not over.",
			Page: page + "getset-timestamp", Source: setnx, Faults: []string{"delay"}, Want: judge.Overlap}, pattern.Getset, 2 * TTL, 0},
		{Target{Name: "no-renewal", Title: "SET NX PX without renewal", Defect: "The work takes longer than the TTL.",
			Page: page + "no-renewal", Source: redlock, Faults: []string{}, Work: 3 * TTL / 2, Want: judge.Overlap}, pattern.SetNX, 0, 0},
		{Target{Name: "no-token", Title: "SET NX PX, renewed by a script", Defect: "The lock is renewed, and its holder knows when it is over. But a write that is late " +
			"has no token by which the resource could refuse it.", Page: page + "paused-client", Source: fencing, Faults: []string{"late-write"}, Want: judge.Unfenced}, pattern.Renewed, 0, 0},
		{Target{Name: "no-claim", Title: "SET NX PX with tokens from INCR, checked when they write", Defect: "The resource learns a token from the first write with it. " +
			"An older holder may still write when a newer one has read, and the newer one overwrites that.",
			Page: page + "paused-client", Source: fencing, Faults: []string{"late-write"}, Work: 3 * TTL / 2, Unclaimed: true, Want: judge.Back}, pattern.Counted, 0, 0},
		{Target{Name: "replica-failover", Title: "SET NX PX on a master with a replica, with a TTL of ten seconds", Defect: "The master answers before the replica has the key. When the replica takes over, the lock is free.",
			Store: Sentinel, Page: page + "replica-failover", Source: redlock, Faults: []string{"failover"}, Settle: 10 * TTL, Want: judge.Overlap}, pattern.SetNX, 0, 10 * TTL},
		{Target{Name: "redlock-clock", Title: "Redlock that does not subtract the time that it took", Defect: "An answer is slow, and the keys are over when the last one answers.",
			Store: Redlock, Page: page + "redlock-clock", Source: redlock, Faults: []string{"slow-acquire"}, Work: 10 * time.Millisecond, Want: judge.Overlap}, pattern.TimelessRedlock, 0, 0},
		{Target{Name: "redlock-restart", Title: "Redlock whose nodes take part at once when they restart", Defect: "A node that has forgotten the lock gives a second client the majority.",
			Store: Redlock, Page: page + "redlock-restart", Source: redlock, Faults: []string{"forget-quorum"}, Want: judge.Overlap}, pattern.HastyRedlock, 0, 0},
		{Target{Name: "row-no-expiry", Title: "INSERT of a row, then DELETE", Defect: "A holder that dies leaves its row, which has no end.",
			Store: Postgres, Page: rows, Source: shedLock + "#behavior", Faults: []string{"kill"}, Want: judge.Blocked}, pattern.InsertRow, 0, 0},
		{Target{Name: "for-update", Title: "SELECT FOR UPDATE outside a transaction", Defect: "The statement is a transaction of its own, so the row is free when it is done.",
			Store: Postgres, Page: page + "for-update", Source: "https://www.postgresql.org/docs/current/explicit-locking.html", Faults: []string{"delay"}, Want: judge.Overlap}, pattern.Autocommit, 0, 0},
		{Target{Name: "pooler-session", Title: "pg_try_advisory_lock through PgBouncer in transaction mode", Defect: "The lock belongs to the connection of the pooler, which the next client gets, too.",
			Store: PgBouncer, Page: "docs/backends/pglock.md", Source: pooling, Faults: []string{"delay"}, Want: judge.Overlap}, pattern.Advisory, 0, 0},
		{Target{Name: "etcd-no-lease", Title: "a key in etcd without a lease", Defect: "A holder that dies never frees its key.",
			Store: Etcd, Page: page + "zookeeper-pause", Source: etcdLock, Faults: []string{"kill"}, Want: judge.Blocked}, pattern.PutIfAbsent, 0, 0},
		{Target{Name: "zk-session", Title: "an ephemeral node in ZooKeeper, and no look at the session", Defect: "The holder is cut off. Its session ends, and with it the node, and the holder works on.",
			Store: ZooKeeper, Page: page + "zookeeper-pause", Source: zk, Faults: []string{"cut"}, Want: judge.Overlap}, pattern.Unwatched, 0, 0},
	}
}

// ServePattern is the process of a target of [Controls].
func ServePattern(name string, in io.Reader, out io.Writer) error {
	for _, e := range controls() {
		if e.Name == name {
			return target.Serve(in, out, e.open)
		}
	}
	return fmt.Errorf("there is no target %q", name)
}

// open connects the client of a pattern.
func (e control) open(ctx context.Context, m target.Message) (target.Locker, error) {
	s := pattern.Spec{
		Pattern: e.pattern, URLs: patternURLs(m.URL), Client: m.Client,
		TTL: cmp.Or(e.ttl, time.Duration(m.TTL)*time.Millisecond), Zero: time.Unix(0, 0), Lock: m.Name,
	}
	if m.Client[0] == 'B' {
		s.Ahead = e.ahead
	}
	c, err := pattern.Open(ctx, s, untraced{})
	if err != nil {
		return nil, err
	}
	return lockerOf(c), nil
}

// patternURLs returns the URLs of the servers of a store as patterns take them.
func patternURLs(url string) []string {
	scheme, addrs, _ := strings.Cut(url, "://")
	switch scheme {
	case "redlock":
		var all []string
		for addr := range strings.SplitSeq(addrs, ",") {
			all = append(all, "redis://"+addr)
		}
		return all
	case "etcd", "zk":
		return strings.Split(addrs, ",")
	}
	return []string{url}
}

// untraced is a [pattern.Tracer] that nobody reads.
type untraced struct{}

func (untraced) Before(string)        {}
func (untraced) After(string, string) {}
func (untraced) Renewed()             {}
func (untraced) Lost(string)          {}

// retryInterval is how long a pattern waits at least, and half as long on average again, before it
// tries once more to get a lock that is taken. Redlock would split votes for ever without chance.
const retryInterval = 10 * time.Millisecond

// lockerOf returns the lock of a pattern, which has one hold at a time.
func lockerOf(c *pattern.Client) target.Locker {
	return func(ctx context.Context, wait time.Duration) (*target.Hold, error) {
		for end := time.Now().Add(wait); ; {
			held, err := c.Try(ctx)
			switch {
			case err != nil:
				return nil, err
			case held:
				return holdOf(c), nil
			case time.Now().After(end):
				return nil, target.ErrDenied
			}
			select {
			case <-time.After(retryInterval + rand.N(retryInterval)):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
	}
}

func holdOf(c *pattern.Client) *target.Hold {
	h := &target.Hold{Release: c.Release}
	if c.Token != nil {
		h.Token = c.Token()
	}
	if c.Held != nil {
		h.Held = func() bool { return !errors.Is(c.Held(), pattern.ErrRefused) }
	}
	return h
}
