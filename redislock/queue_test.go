package redislock_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
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

func TestMain(m *testing.M) {
	raiseParallelism()
	os.Exit(livetest.Main(m, job.do))
}

// raiseParallelism lets more tests run at a time than there are processors, unless a flag says
// how many: they mostly wait for leases to end.
func raiseParallelism() {
	flag.Parse()
	isSet := false
	flag.Visit(func(f *flag.Flag) { isSet = isSet || f.Name == "test.parallel" })
	if f := flag.Lookup("test.parallel"); !isSet && f != nil {
		_ = f.Value.Set("6") // it is a number
	}
}

// A job is what a child process does with its own driver.
type job struct {
	Req  driver.Request
	Addr string
}

func (j job) do(ctx context.Context) error {
	d, err := redislock.Open(ctx, at(j.Addr))
	if err != nil {
		return err
	}
	defer d.Close()
	return livetest.Hold(ctx, d, j.Req)
}

// startChild starts a child process that holds a lock, or waits for it.
func startChild(t testing.TB, addr string, req driver.Request) *livetest.Child {
	t.Helper()
	return livetest.StartChild(t, job{req, addr})
}

// TestDeadWaiters kills waiting processes. A release passes over them at once.
func TestDeadWaiters(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d1, d2 := open(t, at(node.Addr())), open(t, at(node.Addr()))
	const ttl = time.Minute
	slack := livetest.Slack(t)
	for _, mode := range modes {
		req := func(id string) driver.Request { return mode.as(request(mode.name, id, ttl)) }
		blocker := req("holder")
		blocker.Shared = false
		held := []driver.Lease{take(t, d1, blocker)}
		for i := 1; i < blocker.Slots; i++ {
			held = append(held, take(t, d1, req(fmt.Sprint("holder", i))))
		}
		var dead []*livetest.Child
		for i := range 3 {
			p := startChild(t, node.Addr(), req(fmt.Sprint("dead", i)))
			queued(t, d1, mode.name, i+1)
			dead = append(dead, p)
		}
		alive := wait(t, d2, req("alive"), 4)
		for _, p := range dead {
			p.Kill()
		}
		free(t, held[0])
		l, took := granted(t, alive, enough, "the waiter behind three dead ones")
		t.Logf("%s: granted after %v", mode.name, took)
		if took > soonEnough+slack() {
			t.Errorf("%s: granted %v after the release, and not at once", mode.name, took)
		}
		free(t, l)
		for _, l := range held[1:] {
			free(t, l)
		}
	}
	nothingLeft(t, node)
}

// TestCutSubscription cuts a waiter's subscription. The waiter gets the lock all the same, and
// the next one, too.
func TestCutSubscription(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		cut  func(*redistest.Node, *livetest.Proxy)
	}{
		{"Killed", func(n *redistest.Node, _ *livetest.Proxy) { n.Must("CLIENT", "KILL", "TYPE", "pubsub") }},
		{"AllCut", func(_ *redistest.Node, p *livetest.Proxy) { p.Cut() }},
		{"AllKilled", func(n *redistest.Node, _ *livetest.Proxy) {
			n.Must("CLIENT", "KILL", "TYPE", "pubsub")
			n.Must("CLIENT", "KILL", "TYPE", "normal")
		}},
	}
	slack := livetest.Slack(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			node := used(t, redistest.Single(t))
			proxy := livetest.NewProxy(t, node.Addr())
			d1, d2 := open(t, at(node.Addr())), open(t, at(proxy.Addr()))
			for round := range 3 { // for the first subscription, and later ones
				name := fmt.Sprint("job", round)
				l := take(t, d1, request(name, "holder", time.Minute))
				waiter := wait(t, d2, request(name, "waiter", time.Minute), 1)
				tt.cut(node, proxy)
				free(t, l) // at the worst moment: nobody is subscribed
				next, took := granted(t, waiter, enough, "a waiter whose subscription was cut")
				t.Logf("granted after %v", took)
				if took > soonEnough+slack() {
					t.Errorf("granted %v after the release", took)
				}
				free(t, next)
			}
			nothingLeft(t, node)
		})
	}
}

// TestUnheardRelease frees a lock without a message, as a foreign client does. The waiter's
// timer notices.
func TestUnheardRelease(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	node.Must("SET", "job", "a stranger", "PX", 3000)
	slack := livetest.Slack(t)
	began := time.Now()
	waiter := wait(t, d, request("job", "waiter", time.Minute), 1)
	l, _ := granted(t, waiter, enough, "a waiter behind a stranger's key that expires")
	if took := time.Since(began); took > 3*time.Second+soonEnough+slack() {
		t.Errorf("granted %v after a key with 3 s to live", took)
	}
	free(t, l)

	node.Must("SET", "job", "a stranger") // for ever
	waiter = wait(t, d, request("job", "waiter", time.Minute), 1)
	node.Must("DEL", "job")
	l, took := granted(t, waiter, enough, "a waiter behind a stranger's key that is deleted")
	if took > soonEnough+slack() {
		t.Errorf("granted %v after a stranger had deleted its key", took)
	}
	free(t, l)
}

// TestPatience leaves a waiter in the queue that has been silent for too long. A release passes
// over it.
func TestPatience(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	proxy := livetest.NewProxy(t, node.Addr())
	d1, d2, d3 := open(t, at(node.Addr())), open(t, at(proxy.Addr())), open(t, at(node.Addr()))
	l := take(t, d1, request("job", "holder", time.Minute))
	silent := wait(t, d2, request("job", "silent", time.Minute), 1)
	heal := proxy.Sever()
	next := wait(t, d3, request("job", "next", time.Minute), 2)
	members, _ := node.Must("ZRANGE", "snib.q:{job}", 0, 0).([]any)
	slack := livetest.Slack(t)
	node.Must("ZADD", "snib.q:{job}", "XX", time.Now().Add(-time.Minute).UnixMicro(), fmt.Sprint(members...))
	node.Must("ZREM", "snib.q:{job}", `"silent"`)
	free(t, l)
	got, took := granted(t, next, enough, "the waiter behind one that is silent")
	if took > soonEnough+slack() {
		t.Errorf("granted %v after the release", took)
	}
	pending(t, silent, "the silent one", "before it has asked again")
	heal()
	free(t, got)
	// It lives, after all.
	back, _ := granted(t, silent, enough, "the silent one, when it asks again")
	free(t, back)
	nothingLeft(t, node)
}

// TestTraffic counts the cost of waiting: few commands for each process, however many
// goroutines wait in it, and one subscription while it is needed.
func TestTraffic(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	o := at(node.Addr())
	d1, d2 := open(t, o), open(t, o)
	if got := subscribers(t, node); got != 0 {
		t.Errorf("%d subscriptions before anybody waits", got)
	}
	l := locker(t, d2, snib.TTL(time.Minute))
	lock := take(t, d1, request("job", "holder", time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var waiting sync.WaitGroup
	waiting.Go(func() { <-beginWith(ctx, d2, request("job", "waiter", time.Minute)) })
	queued(t, d1, "job", 1)
	measure := func(what string) {
		time.Sleep(500 * time.Millisecond) // in which earlier requests end
		const span = 6 * time.Second       // longer than a heartbeat interval
		before, began := node.Calls(), time.Now()
		time.Sleep(span)
		after, took := node.Calls(), time.Since(began)
		sum, counts := 0, []string{}
		for name, n := range after {
			switch n -= before[name]; name {
			case "info", "exists", "time", "hmget", "hget", "hset", "get", "set", "mget", "del", "zrange",
				"zrevrangebyscore", "zscore", "zadd", "pttl", "pexpire", "type":
				continue // our own readings, and what scripts call
			default:
				if n > 0 {
					sum += n
					counts = append(counts, fmt.Sprint(name, " ", n))
				}
			}
		}
		perSecond := float64(sum) / took.Seconds()
		t.Logf("%s: %.1f commands/s: %v", what, perSecond, counts)
		if perSecond > 10 {
			t.Errorf("%s costs %.1f commands/s, want 10 at most: %v", what, perSecond, counts)
		}
	}
	measure("one waiter, in two processes")
	for range 1000 {
		waiting.Go(func() {
			if lock, err := l.Acquire(ctx, "job"); err == nil {
				_ = lock.Release()
			}
		})
	}
	queued(t, d1, "job", 2) // one contender for all of them
	measure("1,000 more waiters in one of them")
	if got := subscribers(t, node); got > 2 { // one for the waiters, and one for the holder
		t.Errorf("%d subscriptions for two processes", got)
	}
	cancel()
	waiting.Wait()
	free(t, lock)
	began := time.Now()
	livetest.Await(t, "end of the subscriptions", func() error {
		if n := subscribers(t, node); n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	t.Logf("the subscriptions ended after %v", time.Since(began))
	nothingLeft(t, node)
}

// subscribers returns how many connections are subscribed.
func subscribers(t testing.TB, n *redistest.Node) int {
	t.Helper()
	text, _ := n.Must("CLIENT", "LIST", "TYPE", "pubsub").(string)
	return strings.Count(text, "id=")
}

// ask sends a request for the lock "job", as a process does that hears no messages. It returns the
// letter of the answer. The grace period is floor.
func ask(node *redistest.Node, floor, id, mode, waits string) string {
	return askFor(node, "60000", floor, id, mode, waits)[:1]
}

// askFor is ask for a TTL in milliseconds, and returns the whole answer.
func askFor(node *redistest.Node, ttl, floor, id, mode, waits string) string {
	return askAt(node, "", ttl, floor, id, mode, waits)
}

// askAt is askFor with what the names of the server's own keys end in, which is a tag in a Cluster.
func askAt(node *redistest.Node, tag, ttl, floor, id, mode, waits string) string {
	rest := `"mode":"` + mode + `","ttl":` + ttl +
		`,"minhold":0,"tokens":1,"attempt":"1","channel":"snib.c:x","blind":true,"pid":1}`
	answers, _ := node.Must("EVAL", redislock.RequestScript.Text(), 5, "snib.m"+tag, "snib.g"+tag, "job", "snib.r:{job}",
		"snib.q:{job}", floor, "3600000", "0", "A", strconv.Quote(id), mode, ttl, "1", waits, rest).([]any)
	return fmt.Sprint(answers...)
}

// TestPlacesInGrace has waiters ask during a grace period when their last requests were longer ago
// than a waiter may be silent. They are served in order after it. Nor does it matter that the
// server's memory is full.
func TestPlacesInGrace(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	ask(node, "off", "holder", "x", "0")
	waiters := []string{"first", "second", "third"}
	for _, id := range waiters {
		ask(node, "off", id, "x", "1")
	}
	node.Must("DEL", "job") // as a release does
	members, _ := node.Must("ZRANGE", "snib.q:{job}", 0, -1).([]any)
	for i, member := range members {
		node.Must("ZADD", "snib.q:{job}", time.Now().Add(-time.Minute).UnixMicro()+int64(i), fmt.Sprint(member))
	}
	node.Must("HSET", "snib.m", "c", time.Now().UnixMicro())
	for _, memory := range []int{0, 1} { // without a limit, and full
		node.Must("CONFIG", "SET", "maxmemory", memory)
		for _, id := range waiters {
			if got := ask(node, "60000", id, "x", "2"); got != "e" {
				t.Errorf("%s asks in the grace period, with maxmemory %d: %s, want e", id, memory, got)
			}
		}
	}
	node.Must("CONFIG", "SET", "maxmemory", 0)
	got := ask(node, "off", "third", "x", "2")
	if holder := fmt.Sprint(node.Must("GET", "job")); got != "q" || !strings.Contains(holder, `"first"`) {
		t.Errorf("the third asks after the grace period: %s, and the holder is %s, want q and the first", got, holder)
	}
}

// TestGraceOfAnother asks for a lock that nobody holds, when the grace period is over for the TTL
// of the request, and not for that of the head of the queue. Nobody is told that the lock is held,
// also if the key of a semaphore still lives, for a lease that was longer than the last one.
func TestGraceOfAnother(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	for i, mode := range []string{"x", "x", "2", "2"} {
		for _, id := range []string{"holder", "other", "first"} {
			ask(node, "off", id, mode, "1")
		}
		if mode == "x" {
			node.Must("DEL", "job") // as the end of the lease does
		} else {
			node.Must("DEL", "snib.r:{job}")
			node.Must("HSET", "snib.r:{job}", `"other"`, "0000000000000001")
		}
		node.Must("HSET", "snib.m", "c", time.Now().Add(-5*time.Second).UnixMicro(), "x", 0)
		answer := askFor(node, "1000", "1000", "second", mode, strconv.Itoa(i%2))
		if left, err := strconv.Atoi(strings.TrimPrefix(answer, "e ")); err != nil || left < 1 || left > 60_000 {
			t.Errorf("%s: the second asks, with %d for a place: %q, want e and the time that keeps the first waiting", mode,
				i%2, answer)
		}
		node.Must("DEL", "job", "snib.r:{job}", "snib.q:{job}")
	}
}

// TestHintsToSharers counts the messages to the holders of a shared lock. Each is told of a new
// waiter, and again by the heartbeats of the first waiter, but not by those of the others. It is
// told of waiters of other processes only, also by a first waiter of its own.
func TestHintsToSharers(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	for i := range 2 {
		req := request("job", fmt.Sprint("holder ", i), time.Minute)
		req.Shared = true
		take(t, d, req)
	}
	ask(node, "off", "holder beside the waiters", "s", "0")
	for i, step := range []struct {
		id, waits string
		want      int
	}{{"first", "1", 2}, {"second", "1", 2}, {"second", "2", 0}, {"first", "2", 2}, {"first", "2", 3}} {
		if i == 4 {
			members, _ := node.Must("ZRANGE", "snib.q:{job}", 0, 0).([]any)
			node.Must("ZADD", "snib.q:{job}", time.Now().UnixMicro(),
				strings.Replace(fmt.Sprint(members...), "snib.c:x", "snib.c:another", 1))
		}
		before := node.Calls()["publish"]
		ask(node, "off", step.id, "x", step.waits)
		if got := node.Calls()["publish"] - before; got != step.want {
			t.Errorf("request %d, of the %s, causes %d messages, want %d", i, step.id, got, step.want)
		}
	}
}

// TestKeyEndsWithLastSharer releases a long lease of a lock that others share for a short time. A
// client of another library, which sees the key alone, waits no longer than they hold it.
func TestKeyEndsWithLastSharer(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	for _, mode := range modes[1:] {
		long := take(t, d, mode.as(request(mode.name, "long", time.Hour)))
		take(t, d, mode.as(request(mode.name, "short", time.Minute)))
		free(t, long)
		for _, key := range []string{mode.name, "snib.r:{" + mode.name + "}"} {
			if left := node.Must("PTTL", key).(int64); left < 1 || left > time.Minute.Milliseconds() {
				t.Errorf("%s lives for another %d ms, want a minute at most", key, left)
			}
		}
	}
}

// TestReadersAreServedTogether deletes the key of a lock that two readers wait for, as its end
// does. The one that asks next gets the lock, and so does the other, which need not ask.
func TestReadersAreServedTogether(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	for _, step := range []struct{ id, mode, waits, want string }{
		{"writer", "x", "0", "g"}, {"first", "s", "1", "q"}, {"second", "s", "1", "q"},
	} {
		if got := ask(node, "off", step.id, step.mode, step.waits); got != step.want {
			t.Fatalf("%s: %s, want %s", step.id, got, step.want)
		}
	}
	node.Must("DEL", "job")
	if got, holders := ask(node, "off", "first", "s", "1"), node.Must("HLEN", "snib.r:{job}"); got != "g" || holders != int64(2) {
		t.Errorf("the first reader asks again: %s, and %v hold the lock, want a grant and both", got, holders)
	}
}

// TestWaitBehindKept has a waiter behind a hold that MinHold keeps. Its end is known, so the waiter
// does not poll as behind a client of another library.
func TestWaitBehindKept(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d1, d2 := open(t, at(node.Addr())), open(t, at(node.Addr()))
	kept := request("job", "a", time.Minute)
	kept.MinHold = time.Minute
	free(t, take(t, d1, kept))
	wait(t, d2, request("job", "b", time.Minute), 1)
	before := node.Calls()["evalsha"]
	time.Sleep(time.Second) // in which it would poll five times
	if n := node.Calls()["evalsha"] - before; n > 3 {
		t.Errorf("the waiter asked %d times in a second", n)
	}
}
