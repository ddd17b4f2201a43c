package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// TestHungServerBounded sends requests to a server that hangs. The goroutines that they leave
// behind must not add up.
func TestHungServerBounded(t *testing.T) {
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	l := locker(t, d, snib.TTL(2*time.Second))
	before := runtime.NumGoroutine()
	machine := livetest.Lateness(t)
	node.Hang()
	const workers = 64
	stop := make(chan struct{})
	var running sync.WaitGroup
	var times [workers][]time.Duration // durations of the attempts
	for i := range workers {
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				began := time.Now()
				_, err := l.Acquire(ctx, fmt.Sprint("name", i))
				cancel()
				times[i] = append(times[i], time.Since(began))
				if err == nil {
					t.Error("Acquire while the server hangs = nil")
				}
			}
		})
	}
	most := 0
	for range 40 {
		time.Sleep(100 * time.Millisecond) // between two counts, for twice the TTL in all
		most = max(most, runtime.NumGoroutine())
	}
	close(stop)
	running.Wait()
	all := slices.Concat(times[:]...)
	slices.Sort(all)
	median, longest := all[len(all)/2], all[len(all)-1]
	t.Logf("%d attempts by %d goroutines took %v, the longest %v; %d goroutines at the most, %d before", len(all), workers, median, longest, most, before)
	if most > before+12*workers {
		t.Errorf("%d goroutines at the most, for %d that ask", most, workers)
	}
	if late := machine(); median > time.Second+10*late || longest > 2*time.Second+10*late {
		t.Errorf("attempts with a context of 50 ms took %v, and up to %v, on a machine that was late by %v", median, longest, late)
	}
	node.Resume()
	lock, err := l.Acquire(t.Context(), "name0")
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
	// It lapses within one TTL.
	livetest.Await(t, "end of what could not be withdrawn", func() error {
		for _, key := range keys(t, node) {
			if strings.HasPrefix(key, "name") {
				return fmt.Errorf("the key %q is left", key)
			}
		}
		return nil
	})
}

// A hungConn is that of a Cluster. It never answers a call for the key, nor those that are made
// together with it: a client answers when all nodes have.
type hungConn struct {
	redislock.Conn
	key string
}

func (c *hungConn) IsCluster() bool { return true }

func (c *hungConn) Eval(ctx context.Context, calls ...redislock.Call) []redislock.Reply {
	if slices.ContainsFunc(calls, func(call redislock.Call) bool { return slices.Contains(call.Keys, c.key) }) {
		<-ctx.Done()
		return slices.Repeat([]redislock.Reply{{Err: context.Cause(ctx)}}, len(calls))
	}
	return c.Conn.Eval(ctx, calls...)
}

// TestHungNode renews leases together, and the node of a Cluster that has one of them hangs. The
// other one is renewed.
func TestHungNode(t *testing.T) {
	t.Parallel()
	c := new(hungConn)
	d := openOn(t, used(t, redistest.Single(t)), func(inner redislock.Conn) redislock.Conn { c.Conn = inner; return c },
		redislock.FailoverGrace(false))
	due := []driver.Lease{take(t, d, request("sound", "a", time.Minute)), take(t, d, request("hung", "a", time.Minute))}
	c.key = "hung"
	livetest.Await(t, "renewal of the other lease", func() error { // a busy machine may be late once
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		answers := d.Renew(ctx, due)
		if err := answers[1].Err; !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("Renew where the node hangs = %v, want ErrUnavailable", err)
		}
		return answers[0].Err
	})
}

// TestHoldersOnFullServer checks that no holder loses its lock because the server's memory is full:
// each can renew its lease, and release it. Others are told that the lock is held, also in a batch
// with a grant for which there is no memory.
func TestHoldersOnFullServer(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	leases := make(map[string]driver.Lease)
	for name, req := range map[string]driver.Request{
		"Exclusive":       {},
		"Long":            {TTL: 10 * time.Minute},
		"Shared":          {Shared: true},
		"Semaphore":       {Slots: 3},
		"MinHold":         {MinHold: time.Hour},
		"MinHoldOfReader": {MinHold: time.Hour, Shared: true},
	} {
		req.Name, req.ID, req.TTL = name, name, max(req.TTL, time.Minute)
		leases[name] = take(t, d, req)
	}
	node.Must("CONFIG", "SET", "maxmemory", 1)
	take := []any{"A", `"new"`, "x", "60000", "1", "0", `"mode":"x","ttl":60000,"minhold":0,"tokens":1}`}
	answers, _ := node.Must(slices.Concat([]any{"EVAL", redislock.RequestScript.Text(), 8, "snib.m", "snib.g",
		"new", "snib.r:{new}", "snib.q:{new}", "Long", "snib.r:{Long}", "snib.q:{Long}", "30000", "3600000", "0"},
		take, take)...).([]any)
	if got := fmt.Sprint(answers...); !strings.HasPrefix(got, "x OOM ") || !strings.Contains(got, "h 5") {
		t.Errorf("a free lock and a held one = %q, want x OOM and h with what is left of 10 minutes", answers)
	}
	for name, l := range leases {
		if err := d.Renew(t.Context(), []driver.Lease{l})[0].Err; err != nil {
			t.Errorf("Renew of %s = %v", name, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), driver.AnswerTimeout)
		if err := l.Release(ctx); err != nil {
			t.Errorf("Release of %s = %v", name, err)
		}
		cancel()
	}
}

// TestReleaseUnavailable checks that a Release that the server could not carry out says that
// the store is unavailable, whether the server answered so or is gone.
func TestReleaseUnavailable(t *testing.T) {
	for name, hinder := range map[string]func(*redistest.Node){
		"Refused": func(n *redistest.Node) { n.Must("CONFIG", "SET", "min-replicas-to-write", "1") },
		"Gone":    func(n *redistest.Node) { n.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			node := used(t, redistest.Single(t))
			d := open(t, at(node.Addr()))
			l, err := d.Acquire(t.Context(), driver.Request{Name: name, ID: "a", TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			hinder(node)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := l.Release(ctx); !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("Release = %v, want ErrUnavailable", err)
			}
		})
	}
}

// TestExecutedLate gives up a request that the network holds back until the driver has another
// connection, and has withdrawn the request on that one. Then the server executes the request. The
// driver withdraws it again.
func TestExecutedLate(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	proxy := livetest.NewProxy(t, node.Addr())
	o := at(proxy.Addr())
	o.ConnWriteTimeout = 200 * time.Millisecond // after that, the client gives the connection up
	d, other := open(t, o), open(t, at(node.Addr()))
	free(t, take(t, d, request("job", "first", time.Minute)))
	deliver := proxy.StallConnected()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if l, err := d.Acquire(ctx, request("job", "given up", time.Minute)); err == nil {
		t.Fatalf("Acquire while nothing gets through = %v", l)
	}
	livetest.Await(t, "new connection", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l, err := d.Acquire(ctx, request("another job", "a", time.Minute))
		if err == nil {
			err = l.Release(ctx)
		}
		return err
	})
	deliver()
	// The server grants the lock now. On a slow machine the withdrawal may be seen first.
	for began := time.Now(); time.Since(began) < time.Second && len(status(t, other, "job").Holders) == 0; {
		time.Sleep(time.Millisecond)
	}
	awaitWithdrawal(t, other)
}
