package redislock_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// uniqueRequest is a request as the core sends it, with the longest TTL that a plain take may have.
func uniqueRequest(name, owner string) driver.Request {
	req := request(name, owner, floor)
	req.UniqueOwner = true
	return req
}

// TestPlainTake counts the commands of a lone cycle: a take needs no script while the server's
// identity is known, and a hold that is over soon has no record.
func TestPlainTake(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	var last uint64
	before := node.Calls()
	for i := range 200 {
		l := take(t, d, uniqueRequest("job", fmt.Sprint("owner ", i)))
		if token(l) <= last {
			t.Fatalf("token %d after %d", token(l), last)
		}
		last = token(l)
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	plain := node.Calls()["hincrby"] - before["hincrby"]
	if keys, _ := node.Must("KEYS", "*job*").([]any); len(keys) > 0 {
		t.Errorf("after all releases there are the keys %v", keys)
	}
	if plain == 0 {
		t.Error("no take was plain")
	}
	t.Logf("%d of 200 takes were plain", plain)
}

// TestRecordFollows takes a lock as the core does. Its record, and with it the holder's details and
// the messages to the holder, follow soon.
func TestRecordFollows(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d, other := open(t, at(node.Addr())), open(t, at(node.Addr()))
	req := uniqueRequest("job", "holder")
	req.Holder.Label = "the label"
	req, wanted := jobtest.WithWanted(req)
	l := take(t, d, req)
	st, err := other.Status(t.Context(), "job")
	if err != nil || len(st.Holders) != 1 {
		t.Fatalf("Status = %+v, %v; want one holder", st, err)
	}
	if h := st.Holders[0]; h.Owner != "holder" || h.Token != token(l) || h.Holder.Label != "the label" {
		t.Errorf("the holder is %+v, want that of the lease with the token %d", h, token(l))
	}
	begin(t, other, uniqueRequest("job", "waiter"))
	select {
	case <-wanted:
	case <-time.After(enough):
		t.Error("the holder was not told that another process waits")
	}
}

// TestPlainTakeAfterLoss deletes what the server knows of itself between two takes: the second one
// must not get a token from a count that began anew.
func TestPlainTakeAfterLoss(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	var last uint64
	for i := range 20 {
		l := take(t, d, uniqueRequest("job", fmt.Sprint("owner ", i)))
		if token(l) <= last {
			t.Fatalf("token %d after %d", token(l), last)
		}
		last = token(l)
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		node.Must("HDEL", "snib.m", "t")
	}
}

// TestPlainTakeAfterPromotion makes the server one that was promoted without the last tokens of its
// master. A check that grants nothing vouches for it when the grace period is over; a plain take
// that follows must not count on from the tokens that lag behind.
func TestPlainTakeAfterPromotion(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	node.Must("SET", "held", "a foreign client", "PX", 60_000)
	last := uint64(0)
	for i := range 30 {
		d := open(t, at(node.Addr()))
		before := take(t, d, uniqueRequest("job", fmt.Sprint("before ", i)))
		if token(before) <= last {
			t.Fatalf("token %d after %d", token(before), last)
		}
		free(t, before)
		promoted := time.Now().Add(-floor - time.Second)
		node.Must("HSET", "snib.m", "t", fmt.Sprint(promoted.Add(-time.Minute).UnixMicro()), "c", fmt.Sprint(promoted.UnixMicro()), "x", "0")
		d = open(t, at(node.Addr()))
		held := uniqueRequest("held", "another")
		held.NoWait = true
		if _, err := d.Acquire(t.Context(), held); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("Acquire of the held lock = %v, want ErrHeld", err)
		}
		after := take(t, d, uniqueRequest("job", fmt.Sprint("after ", i)))
		if last = token(after); last <= token(before) {
			t.Fatalf("token %d after %d", last, token(before))
		}
		free(t, after)
	}
}

// TestPlainTakeYieldsToQueue puts a waiter into the queue of a lock whose holder's key expires: a
// plain take finds the lock free, and must give it back to the waiter.
func TestPlainTakeYieldsToQueue(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d, other := open(t, at(node.Addr())), open(t, at(node.Addr()))
	node.Must("SET", "job", "a foreign client", "PX", 60_000)
	waiting := wait(t, other, uniqueRequest("job", "waiter"), 1)
	for i := range 100 { // so that the server is known
		l := take(t, d, uniqueRequest("other", fmt.Sprint("owner ", i)))
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	node.Must("DEL", "job")
	late := begin(t, d, uniqueRequest("job", "late"))
	first, _ := granted(t, waiting, enough, "the waiter")
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	second, _ := granted(t, late, enough, "the late one")
	if token(second) <= token(first) {
		t.Errorf("token %d after %d", token(second), token(first))
	}
}

// TestPlainTakeDenied has a user that may run what the scripts of earlier versions needed, and
// nothing else.
func TestPlainTakeDenied(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	node.Must("ACL", "SETUSER", "locks", "on", ">secret", "~*", "&*", "+@all", "-hincrby")
	o := at(node.Addr())
	o.Username, o.Password = "locks", "secret"
	d := open(t, o)
	l := locker(t, d, snib.TTL(floor))
	for range 50 {
		lock, err := l.Acquire(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Release(); err != nil {
			t.Fatal(err)
		}
	}
}
