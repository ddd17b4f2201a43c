package redislock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// A countingConn counts the calls of the full script.
type countingConn struct {
	redislock.Conn
	full *atomic.Int64
}

func (c countingConn) Eval(ctx context.Context, calls ...redislock.Call) []redislock.Reply {
	for _, call := range calls {
		if call.Script == redislock.FullScript {
			c.full.Add(1)
		}
	}
	return c.Conn.Eval(ctx, calls...)
}

// TestSmallHandOver has two processes that take turns at a lock. Small scripts put them into the
// queue and hand the lock over, and the full script has nothing to do.
func TestSmallHandOver(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	var full atomic.Int64
	counted := func(c redislock.Conn) redislock.Conn { return countingConn{c, &full} }
	d1, d2 := openOn(t, node, counted), openOn(t, node, counted)
	held := take(t, d1, request("job", "owner", floor)) // which has a record
	small := 0
	for i := range 20 {
		d1, d2 = d2, d1
		before := full.Load()
		waiting := wait(t, d1, uniqueRequest("job", fmt.Sprint("owner ", i)), 1)
		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		next, _ := granted(t, waiting, enough, "the waiter")
		if full.Load() == before {
			small++
		}
		if token(next) <= token(held) {
			t.Fatalf("token %d after %d", token(next), token(held))
		}
		held = next
	}
	free(t, held)
	if small == 0 {
		t.Error("the full script served each hand-over")
	}
	t.Logf("%d of 20 hand-overs needed small scripts only", small)
	nothingLeft(t, node)
}

// TestHandOverTellsWanted has two waiters. The first of them was not there when the second one told
// the holder, so its grant must tell.
func TestHandOverTellsWanted(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d1, d2, d3 := open(t, at(node.Addr())), open(t, at(node.Addr())), open(t, at(node.Addr()))
	held := take(t, d1, request("job", "holder", floor))
	req, wanted := jobtest.WithWanted(uniqueRequest("job", "first"))
	first := wait(t, d2, req, 1)
	wait(t, d3, uniqueRequest("job", "second"), 2)
	free(t, held)
	next, _ := granted(t, first, enough, "the first waiter")
	select {
	case <-wanted:
	case <-time.After(enough):
		t.Error("the first waiter was not told that another one waits")
	}
	free(t, next)
}

// TestHandOverInGrace releases a lock, for which somebody waits, on a server that may have
// forgotten leases: the lock is free then, and nobody is granted it.
func TestHandOverInGrace(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d, other := open(t, at(node.Addr())), open(t, at(node.Addr()))
	held := take(t, d, uniqueRequest("job", "holder"))
	waiting := wait(t, other, uniqueRequest("job", "waiter"), 1)
	node.Must("HSET", "snib.m", "r", "another server")
	time.Sleep(50 * time.Millisecond) // longer than what a process knows of a server counts
	released := driver.Now()
	free(t, held)
	next, _ := granted(t, waiting, enough, "the waiter")
	if early := next.Grant().Start.Sub(released); early < floor/2 { // it waits for the whole floor
		t.Errorf("the lease counts from %v after the release, want %v at least", early, floor/2)
	}
	free(t, next)
}

// distantTTL is one by whose end no test passes. The small scripts serve it if it is the floor,
// too.
const distantTTL = 20 * time.Second

func distantRequest(owner string) driver.Request {
	req := uniqueRequest("job", owner)
	req.TTL = distantTTL
	return req
}

// TestHandOverKeepsModes has waiters that the small script must leave to the full one: readers, who
// get the lock together.
func TestHandOverKeepsModes(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	o, opt := at(node.Addr()), redislock.GraceFloor(distantTTL)
	d, other := open(t, o, opt), open(t, o, opt)
	held := take(t, d, distantRequest("writer"))
	var readers []<-chan result
	for i := range 2 {
		req := distantRequest(fmt.Sprint("reader ", i))
		req.Shared = true
		readers = append(readers, wait(t, other, req, i+1))
	}
	free(t, held)
	for _, reader := range readers {
		granted(t, reader, soonEnough, "a reader")
	}
}

// TestHandOverPassesDead has a waiter whose process was killed before one that lives.
func TestHandOverPassesDead(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	o, opt := at(node.Addr()), redislock.GraceFloor(distantTTL)
	d, other := open(t, o, opt), open(t, o, opt)
	held := take(t, d, distantRequest("holder"))
	dead := startChild(t, node.Addr(), distantRequest("dead"))
	queued(t, d, "job", 1)
	alive := wait(t, other, distantRequest("alive"), 2)
	dead.Kill()
	free(t, held)
	granted(t, alive, soonEnough, "who waits behind a dead waiter")
}

// TestEnqueueBehindForeign has a foreign client that holds a lock whose record was left by a holder
// of snib. The waiter must poll, because the foreign client tells nobody that it releases.
func TestEnqueueBehindForeign(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d, other := open(t, at(node.Addr())), open(t, at(node.Addr()))
	held := take(t, d, distantRequest("holder"))
	waiting := wait(t, other, distantRequest("first"), 1) // so that it enters the queue at once later
	free(t, held)
	granted(t, waiting, enough, "the waiter")
	node.Must("SET", "job", "a foreign client", "PX", 60_000)
	waiting = wait(t, other, distantRequest("second"), 1)
	node.Must("DEL", "job")
	granted(t, waiting, soonEnough, "who waits behind a foreign client")
}
