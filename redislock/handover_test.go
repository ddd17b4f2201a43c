package redislock_test

import (
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

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
