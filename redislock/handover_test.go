package redislock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// TestHandOverTellsWanted has two waiters. The first of them was not there when the second one
// told the holder, so its grant must tell.
func TestHandOverTellsWanted(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d1, d2, d3 := open(t, at(node.Addr())), open(t, at(node.Addr())), open(t, at(node.Addr()))
	held := take(t, d1, request("job", "holder", floor))
	req, wanted := livetest.WithWanted(uniqueRequest("job", "first"))
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
	held := take(t, d, distantRequest("holder")) // which a busy machine must not outlast
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

// distantTTL is one by whose end no test passes.
const distantTTL = 20 * time.Second

func distantRequest(id string) driver.Request {
	req := uniqueRequest("job", id)
	req.TTL = distantTTL
	return req
}

// TestHandOverKeepsModes has readers who wait behind a writer, and get the lock together.
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

// TestEnqueueBehindForeign has a foreign client that holds a lock whose record was left by a
// holder of snib. The waiter must poll, because the foreign client tells nobody that it releases.
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

// TestNewHold takes a lock as the core does. Others see the holder's details at once, and the
// holder is told that they wait.
func TestNewHold(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d, other := open(t, at(node.Addr())), open(t, at(node.Addr()))
	req := uniqueRequest("job", "holder")
	req.Holder.Label = "the label"
	req, wanted := livetest.WithWanted(req)
	l := take(t, d, req)
	st, err := other.Status(t.Context(), "job")
	if err != nil || len(st.Holders) != 1 {
		t.Fatalf("Status = %+v, %v; want one holder", st, err)
	}
	if h := st.Holders[0]; h.ID != "holder" || h.Token != token(l) || h.Holder.Label != "the label" {
		t.Errorf("the holder is %+v, want that of the lease with the token %d", h, token(l))
	}
	begin(t, other, uniqueRequest("job", "waiter"))
	select {
	case <-wanted:
	case <-time.After(enough):
		t.Error("the holder was not told that another process waits")
	}
}
