package redislock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// attemptIn returns the number of the attempt in a grant, or in an answer with one request, as read
// by somebody who may read the store.
func attemptIn(t *testing.T, in any) string {
	t.Helper()
	_, after, _ := strings.Cut(fmt.Sprint(in), `"attempt":"`)
	id, _, found := strings.Cut(after, `"`)
	if !found {
		t.Fatalf("%q has no attempt", in)
	}
	return id
}

// listened waits until so many of our channels have subscribers. It returns them, as anybody can
// find them out.
func listened(t *testing.T, n *redistest.Node, want int) (channels []any) {
	t.Helper()
	livetest.Await(t, "subscriptions", func() error {
		if channels, _ = n.Must("PUBSUB", "CHANNELS", "snib.*").([]any); len(channels) != want {
			return fmt.Errorf("there are %d, want %d", len(channels), want)
		}
		return nil
	})
	return channels
}

// TestForgedGrants publishes all messages to a waiter and a holder, as a sender does that has read
// their ids. No message grants or ends anything.
func TestForgedGrants(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d1, d2 := open(t, at(node.Addr())), open(t, at(node.Addr()))
	const ttl = time.Hour // it lasts, however slow the machine is
	l, lost := livetest.AcquireTold(t, d1, request("job", "holder", ttl))
	waiter := wait(t, d2, request("job", "waiter", ttl), 1)
	ids := []string{attemptIn(t, node.Must("ZRANGE", "snib.q:{job}", 0, 0)), attemptIn(t, node.Must("GET", "job"))}
	for _, channel := range listened(t, node, 2) {
		for _, id := range ids {
			for _, word := range []string{"k", "w", "b", "g", "", "o", "l"} {
				node.Must("PUBLISH", channel, id+" "+word)
			}
		}
	}
	queued(t, d1, "job", 1)
	time.Sleep(200 * time.Millisecond) // in which the waiter reads what was published last
	pending(t, waiter, "the waiter", "after messages that nobody of ours has sent")
	select {
	case err := <-lost:
		t.Errorf("the holder was told %v, and holds", err)
	default:
	}
	if err := renew(t, d1, l); err != nil {
		t.Errorf("Renew by the holder = %v", err)
	}
	free(t, l)
	next, _ := granted(t, waiter, enough, "the waiter")
	if token(next) <= token(l) || token(next) >= 1<<53 {
		t.Errorf("token %d after %d", token(next), token(l))
	}
	free(t, next)
	nothingLeft(t, node)
}

// TestFloodOfMessages sends messages to a waiter and a holder as fast as it can, with their
// true ids. They cost a few calls to the store, and not one each.
func TestFloodOfMessages(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d1, d2 := open(t, at(node.Addr())), open(t, at(node.Addr()))
	const ttl = time.Hour // it lasts, however long the messages take
	req := request("job", "holder", ttl)
	req.OnLost = func(error) {} // who wants to be told of a loss
	l := take(t, d1, req)
	waiter := wait(t, d2, request("job", "waiter", ttl), 1)
	holder := attemptIn(t, node.Must("GET", "job"))
	all, waiting := listened(t, node, 2), attemptIn(t, node.Must("ZRANGE", "snib.q:{job}", 0, 0))
	before, began := node.Calls()["evalsha"], time.Now()
	const messages = 3000
	for i := range messages {
		id, word := flood(i, waiting, holder)
		for _, channel := range all {
			node.Must("PUBLISH", channel, id+" "+word)
		}
	}
	took := time.Since(began)
	calls := node.Calls()["evalsha"] - before
	t.Logf("%d messages within %v cost %d calls", messages, took, calls)
	if most := 40 + int(took/(50*time.Millisecond)); calls > most {
		t.Errorf("%d messages within %v cost %d calls, want at most %d", messages, took, calls, most)
	}
	pending(t, waiter, "the waiter", "after the flood")
	machine := livetest.Lateness(t)
	free(t, l)
	next, took := granted(t, waiter, enough, "the waiter")
	if late := machine(); took > soonEnough+10*late {
		t.Errorf("granted %v after the release, on a machine that was late by %v", took, late)
	}
	free(t, next)
}

// flood returns the id that the i-th message is for, and the word that it says.
func flood(i int, waiter, holder string) (id, word string) {
	if i%2 == 0 {
		return waiter, "k"
	}
	return holder, "b"
}
