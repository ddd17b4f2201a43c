package redislock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// A lossyConn loses requests and answers, and executes some requests later than others that were
// sent after them, and after the caller was told that they failed.
type lossyConn struct {
	redislock.Conn
	mu  sync.Mutex
	rng *rand.Rand
	all sync.WaitGroup // late requests
}

var errLost = errors.New("the connection was lost")

func (c *lossyConn) Eval(ctx context.Context, calls ...redislock.Call) []redislock.Reply {
	c.mu.Lock()
	fate, pause := c.rng.IntN(100), time.Duration(c.rng.IntN(8))*time.Millisecond
	c.mu.Unlock()
	lost := make([]redislock.Reply, len(calls))
	for i := range lost {
		lost[i].Err = errLost
	}
	switch {
	case fate < 3:
		return lost
	case fate < 7:
		c.Conn.Eval(ctx, calls...)
		return lost
	case fate < 9: // late
		own := slices.Clone(calls)
		for i, call := range own {
			own[i].Keys, own[i].Args = slices.Clone(call.Keys), slices.Clone(call.Args)
		}
		c.all.Go(func() {
			time.Sleep(pause) // others are executed before
			c.Conn.Eval(context.Background(), own...)
		})
		return lost
	case fate < 13:
		time.Sleep(pause) // likewise
	}
	return c.Conn.Eval(ctx, calls...)
}

// TestPathsUnderLoss has three processes whose requests and answers are lost, and are executed in
// another order than they were sent in. Locks are taken and freed alone, in batches and
// by a hint.
func TestPathsUnderLoss(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	var drivers []*redislock.Driver
	for seed := range uint64(3) {
		drivers = append(drivers, openOn(t, node, func(c redislock.Conn) redislock.Conn {
			lossy := &lossyConn{Conn: c, rng: rand.New(rand.NewPCG(1, seed))} //nolint:gosec // it is repeatable
			t.Cleanup(lossy.all.Wait)
			return lossy
		}))
	}
	const ttl = 300 * time.Millisecond // that of a request which is executed after its release
	livetest.Contend(t, drivers, 40, ttl)
	for _, name := range []string{"one", "two"} { // which are free, at the latest when that is over
		free(t, take(t, open(t, at(node.Addr())), request(name, "last", time.Minute)))
	}
}

// A gateConn makes no call for a lock before its gate is closed.
type gateConn struct {
	redislock.Conn
	began chan struct{}
	gates map[string]chan struct{}
}

func (c gateConn) Eval(ctx context.Context, calls ...redislock.Call) []redislock.Reply {
	c.began <- struct{}{}
	<-c.gates[calls[0].Keys[2]]
	return c.Conn.Eval(ctx, calls...)
}

// TestCallerSendsOneBatch has a caller who sends its batch itself, because nobody can cancel its
// context. It does not wait for the batch of those that came meanwhile.
func TestCallerSendsOneBatch(t *testing.T) {
	t.Parallel()
	gates := map[string]chan struct{}{"one": make(chan struct{}), "two": make(chan struct{})}
	conn := gateConn{nil, make(chan struct{}, 100), gates}
	d := openOn(t, used(t, redistest.Single(t)), func(c redislock.Conn) redislock.Conn { conn.Conn = c; return conn })
	acquire := func(name string) <-chan struct{} {
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			if _, err := d.Acquire(context.Background(), request(name, "owner", time.Minute)); err != nil {
				t.Error(err)
			}
		}()
		return answered
	}
	first := acquire("one")
	<-conn.began
	second := acquire("two")
	time.Sleep(10 * time.Millisecond) // so that it has most likely gathered, which is not visible
	close(gates["one"])
	awaitClosed(t, first, "the answer to the caller who does not wait for another batch")
	close(gates["two"])
	awaitClosed(t, second, "the answer to the second caller")
}
