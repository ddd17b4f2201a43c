package redislock_test

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redislock/rediskit"
)

// The scripts of commit 44008a0, which is the version before plain takes.
//
//go:embed testdata/44008a0/script/*.lua
var recorded embed.FS

// An earlierConn makes a process of the version before of a driver: it runs the scripts that this
// version ran. No plain command is sent, and nothing is read but by scripts.
type earlierConn struct {
	redislock.Conn
	fast, full *redislock.Script
}

func (c *earlierConn) Eval(ctx context.Context, calls ...redislock.Call) []redislock.Reply {
	replies := make([]redislock.Reply, len(calls))
	for i, call := range calls {
		switch call.Script {
		case nil:
			continue // that version did not know this way: it is as if nothing was there
		case redislock.FullScript: // without DurableAOF, and what the caller knows of the server
			call.Script, call.Args = c.full, slices.Delete(slices.Clone(call.Args), 2, 6)
		case redislock.FastPathScript:
			if call.Args[5] != "0" {
				panic("the version before wrote a record with each grant")
			}
			call.Script = c.fast
		case redislock.FreeScript:
			call.Script, call.Keys = c.fast, append([]string{"snib.m"}, call.Keys...)
			call.Args = append([]string{floorMillis, "3600000", "0", "0", "1", "0"}, append(slices.Clone(call.Args), "0")...)
		}
		replies[i] = c.Conn.Eval(ctx, call)[0]
	}
	return replies
}

var floorMillis = strconv.FormatInt(floor.Milliseconds(), 10)

// openEarlier returns a driver that does what a process of the version before does.
func openEarlier(t *testing.T, node *redistest.Node) *redislock.Driver {
	t.Helper()
	scripts, err := fs.Sub(recorded, "testdata/44008a0")
	if err != nil {
		t.Fatal(err)
	}
	return openOn(t, node, func(c redislock.Conn) redislock.Conn {
		return &earlierConn{c, rediskit.NewScript(scripts, "fastpath"), rediskit.NewScript(scripts, "full")}
	}, redislock.YieldToForeign(10*time.Hour)) // with which each grant has a record
}

// openOn returns a driver on a connection that wrap changes.
func openOn(t *testing.T, node *redistest.Node, wrap func(redislock.Conn) redislock.Conn, opts ...redislock.Option) *redislock.Driver {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{node.Addr()}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	d, err := redislock.NewConn(t.Context(), wrap(redislock.ConnOf(client)), append(opts, redislock.GraceFloor(floor))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// TestRollingUpgrade has processes of this version and of the one before: they exclude each other,
// hand over to each other, and count the same tokens.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	now, before := open(t, at(node.Addr())), openEarlier(t, node)
	var last uint64
	count := func(l driver.Lease) {
		t.Helper()
		if token(l) <= last {
			t.Fatalf("token %d after %d", token(l), last)
		}
		last = token(l)
	}
	for i := range 20 {
		for _, pair := range [][2]*redislock.Driver{{now, before}, {before, now}} {
			who := fmt.Sprint(i, pair[0] == now)
			name := "upgrade " + who
			holder := take(t, pair[0], uniqueRequest(name, "holder "+who))
			count(holder)
			refused(t, pair[1], uniqueRequest(name, "hurried "+who), "during a hold of the other version")
			waiting := begin(t, pair[1], uniqueRequest(name, "waiter "+who))
			if i%2 == 0 {
				queued(t, now, name, 1) // which takes as long as the record does
			}
			pending(t, waiting, "the waiter", "during the hold")
			free(t, holder)
			next, _ := granted(t, waiting, enough, "the waiter of the other version")
			count(next)
			free(t, next)
		}
	}
	nothingLeft(t, node)
}

// TestRollingUpgradeCrowd has two processes of each version that contend.
func TestRollingUpgradeCrowd(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	drivers := []*redislock.Driver{open(t, at(node.Addr())), openEarlier(t, node), open(t, at(node.Addr())), openEarlier(t, node)}
	jobtest.Contend(t, drivers, 60, floor)
	nothingLeft(t, node)
}
