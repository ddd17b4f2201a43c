package redislock_test

import (
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// TestHandOverInGrace releases a lock, for which somebody waits, on a server that may have
// forgotten leases: the lock is free then, and nobody is granted it.
func TestHandOverInGrace(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d, other := open(t, at(node.Addr())), open(t, at(node.Addr()))
	held := take(t, d, request("job", "holder", distantTTL))
	waiting := wait(t, other, request("job", "waiter", floor), 1)
	node.Must("HSET", "snib.m", "r", "another server")
	time.Sleep(50 * time.Millisecond) // longer than what a process knows of a server counts
	released := driver.Now()
	free(t, held)
	next, _ := granted(t, waiting, enough, "the waiter")
	if early := next.Grant().Start.Sub(released); early < floor/2 { // it waits for the whole floor
		t.Errorf("the lease counts from %v after the release, want %v at least", early, floor/2)
	}
}
