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

// The scripts of commit 44008a0, which is the version before plain takes, and of 37f94f5, which is
// the version before small scripts hand over.
//
//go:embed testdata/44008a0/script/*.lua testdata/37f94f5/script/*.lua
var recorded embed.FS

// An earlierConn makes a process of an earlier version of a driver: it runs the scripts that this
// version ran.
type earlierConn struct {
	redislock.Conn
	fast, full *redislock.Script
	free       *redislock.Script // nil before plain takes: then all was done by the other two
}

func (c *earlierConn) Eval(ctx context.Context, calls ...redislock.Call) []redislock.Reply {
	replies := make([]redislock.Reply, len(calls))
	for i, call := range calls {
		switch call.Script {
		case nil:
			if c.free == nil {
				continue // it is as if nothing was there
			}
		case redislock.FullScript:
			call.Script, call.Args = c.full, inEarlierOrder(call.Args)
			if c.free == nil { // without DurableAOF, and what the caller knows of the server
				call.Args = slices.Delete(call.Args, 2, 6)
			}
		case redislock.FastPathScript:
			if c.free == nil && call.Args[5] != "0" {
				panic("the version before wrote a record with each grant")
			}
			call.Script = c.fast
		case redislock.FreeScript:
			call.Script, call.Keys, call.Args = c.free, call.Keys[2:5], call.Args[6:8]
			if c.free == nil {
				call.Script, call.Keys = c.fast, append([]string{"snib.m"}, call.Keys...)
				call.Args = append([]string{floorMillis, "3600000", "0", "0", "1", "0"}, call.Args[0], call.Args[1], "0")
			}
		case redislock.EnqueueScript:
			replies[i].Lines = []string{"?"}
			continue
		}
		replies[i] = c.Conn.Eval(ctx, call)[0]
	}
	return replies
}

// inEarlierOrder changes the arguments of the full script: those of a release had another order.
func inEarlierOrder(args []string) []string {
	args = slices.Clone(args)
	for i := 6; i < len(args); {
		if args[i] == "R" {
			args[i+3], args[i+4] = args[i+4], args[i+3]
		}
		n, err := strconv.Atoi(args[i+1])
		if err != nil {
			panic(err)
		}
		i += 2 + n
	}
	return args
}

var floorMillis = strconv.FormatInt(floor.Milliseconds(), 10)

// versions are the earlier versions.
var versions = []string{"44008a0", "37f94f5"}

// openEarlier returns a driver that does what a process of an earlier version does.
func openEarlier(t *testing.T, node *redistest.Node, version string) *redislock.Driver {
	t.Helper()
	scripts, err := fs.Sub(recorded, "testdata/"+version)
	if err != nil {
		t.Fatal(err)
	}
	var opts []redislock.Option
	earlier := &earlierConn{fast: rediskit.NewScript(scripts, "fastpath"), full: rediskit.NewScript(scripts, "full")}
	if version == "44008a0" {
		opts = append(opts, redislock.YieldToForeign(10*time.Hour)) // with which each grant has a record
	} else {
		earlier.free = rediskit.NewScript(scripts, "free")
	}
	return openOn(t, node, func(c redislock.Conn) redislock.Conn {
		earlier.Conn = c
		return earlier
	}, opts...)
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

// TestRollingUpgrade has processes of this version and of an earlier one: they exclude each other,
// hand over to each other, and count the same tokens.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			node := used(t, redistest.Single(t))
			rollingUpgrade(t, node, open(t, at(node.Addr())), openEarlier(t, node, version))
		})
	}
}

func rollingUpgrade(t *testing.T, node *redistest.Node, now, before *redislock.Driver) {
	t.Helper()
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
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			node := used(t, redistest.Single(t))
			drivers := []*redislock.Driver{
				open(t, at(node.Addr())), openEarlier(t, node, version), open(t, at(node.Addr())), openEarlier(t, node, version),
			}
			jobtest.Contend(t, drivers, 60, floor)
			nothingLeft(t, node)
		})
	}
}
