package redislock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// TestToldOfLostMemory restarts a server without its memory. Each holder is told as soon as the
// server is back, and not only at its next renewal.
func TestToldOfLostMemory(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			_, told := livetest.AcquireTold(t, d, mode.as(request(mode.name, "holder", time.Minute)))
			listened(t, node, 1)
			node.Kill()
			node.Restart()
			t.Logf("told %v after the restart", livetest.AwaitLoss(t, told, enough))
			used(t, node)
		})
	}
}

// TestShortTTLDoesNotDecide restarts a server without its memory, under a long lease. Requests
// with a short TTL wait for the floor of the grace period, and not only for their own TTL. Then
// they get the lock.
func TestShortTTLDoesNotDecide(t *testing.T) {
	t.Parallel()
	const floor = 8 * time.Second
	slack := livetest.Slack(t)
	node := used(t, redistest.Single(t))
	d1, d2 := open(t, at(node.Addr()), redislock.GraceFloor(floor)), open(t, at(node.Addr()), redislock.GraceFloor(floor))
	first := take(t, d1, request("job", "first", floor))
	node.Kill()
	node.Restart()
	if left := withheld(t, d2, request("job", "second", 100*time.Millisecond),
		"after a restart without memory"); left > floor+2*time.Second+slack() {
		t.Errorf("nothing is granted for %v, with a floor of %v", left, floor)
	}
	granted(t, begin(t, d2, request("job", "second", time.Second)), floor+enough, "second")
	if left := valid(first, floor); left > 0 {
		t.Errorf("granted while the first hold is valid for another %v", left)
	}
}

// TestReleasedLeasesDoNotCount acquires a long lease and releases it. After the next restart
// nobody waits for that lease. If a long lease still lives, everybody waits until somebody calls
// Forget, but no longer than MaxTTL.
func TestReleasedLeasesDoNotCount(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, mode lockMode) {
		node := used(t, redistest.Single(t, "appendonly yes", "appendfsync always"))
		d := open(t, at(node.Addr()), redislock.GraceFloor(100*time.Millisecond), redislock.MaxTTL(24*time.Hour))
		restart := func() {
			t.Helper()
			node.Kill()
			node.Restart()
		}
		awaitServer := func() { // so that the next call finds a connection
			livetest.Await(t, "answer of the server", func() error { _, err := d.Status(t.Context(), "job"); return err })
		}
		l := take(t, d, mode.as(request("job", "long", 20*time.Hour)))
		if err := renew(t, d, l); err != nil {
			t.Fatal(err)
		}
		free(t, l)
		restart()
		take(t, d, mode.as(request("job", "next", 200*time.Millisecond)))
		nothingLeft(t, node)

		// Otherwise a request for such a long lease would have a grace period of a minute.
		used(t, node)
		broken := take(t, d, mode.as(request("job", "broken", 23*time.Hour)))
		if err := d.Break(t.Context(), "job", broken.ID()); err != nil {
			t.Fatal(err)
		}

		take(t, d, mode.as(request("job", "lives", 20*time.Hour)))
		restart()
		awaitServer()
		if left := withheld(t, d, request("another", "next", time.Second), "with a long lease"); left < 19*time.Hour ||
			left > 20*time.Hour {
			t.Errorf("a lease of 20 h lives, one of 23 h was broken, and the grace lasts %v", left)
		}
		bounded := open(t, at(node.Addr()), redislock.GraceFloor(100*time.Millisecond), redislock.MaxTTL(10*time.Minute))
		if left := withheld(t, bounded, request("another", "next", time.Second), "with MaxTTL"); left > 10*time.Minute {
			t.Errorf("the grace lasts %v, with a MaxTTL of 10 min", left)
		}
		if err := d.Admin().Forget(t.Context()); err != nil {
			t.Fatal(err)
		}
		take(t, d, request("another", "next", time.Second))
		restart()
		// Forget is permanent.
		take(t, d, request("a third", "next", time.Second))
	})
}

// TestGraceOfCluster holds a long lease in one slot of a Cluster. A new master of the slot counts
// it, and Forget ends what is left of a grace period in each slot.
func TestGraceOfCluster(t *testing.T) {
	t.Parallel()
	c := redistest.Cluster(t, redistest.Password(password))
	o := rueidis.ClientOption{InitAddress: c.Addrs(), Password: password}
	usedCluster(t, c, o, "")
	d := open(t, o, redislock.GraceFloor(time.Second), redislock.MaxTTL(24*time.Hour))
	take(t, d, request("{job}", "long", 2*time.Hour))
	slot := c.SlotOf("job")
	c.FirstMasterOf(slot).Must("HSET", "snib.m:{"+redislock.TagOf(uint16(slot))+"}", "r", "another server")
	if left := withheld(t, d, request("job", "next", time.Minute), "by a master that has the memory of another one"); left <
		time.Hour {
		t.Errorf("a lease of 2 h lives, and the grace lasts %v", left)
	}
	if err := d.Admin().Forget(t.Context()); err != nil {
		t.Fatalf("Forget = %v", err)
	}
	free(t, take(t, d, request("job", "next", time.Minute)))
}

// TestLimits checks that options that can't be used are rejected, and the default of MaxTTL.
func TestLimits(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	for _, opts := range [][]redislock.Option{
		{redislock.MaxTTL(0)}, {redislock.MaxTTL(-time.Second)}, {redislock.MaxTTL(20 * 365 * 24 * time.Hour)},
		{redislock.GraceFloor(-1)}, {redislock.YieldToForeign(time.Second - 1)}, {redislock.YieldToForeign(-time.Second)},
		{{}},
	} {
		if d, err := redislock.Open(t.Context(), at(node.Addr()), opts...); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Open = %v, %v, want ErrInvalid", d, err)
		}
	}
	if got := new(redislock.Driver).Info().MaxTTL; got != time.Hour {
		t.Errorf("MaxTTL is %v by default, want 1 h", got)
	}
	d := open(t, at(node.Addr()), redislock.MaxTTL(time.Minute))
	if _, err := snib.New(d, snib.TTL(time.Minute+time.Second)); !errors.Is(err, snib.ErrInvalid) {
		t.Errorf("a Locker with a TTL above MaxTTL = %v, want ErrInvalid", err)
	}
}

// TestMalformedQueue adds entries to a queue that snib itself never writes. No entry keeps anybody
// from the lock.
func TestMalformedQueue(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d1, d2 := open(t, at(node.Addr())), open(t, at(node.Addr()))
	now := time.Now().UnixMicro()
	record := func(change string) string {
		text := `"evil"`
		for _, field := range [][2]string{{"mode", `"x"`}, {"ttl", "30000"}, {"minhold", "0"}, {"tokens", "1"},
			{"attempt", `"7"`}, {"channel", `"snib.c:evil"`}, {"blind", "true"}} {
			name, value := field[0], field[1]
			if changed, to, _ := strings.Cut(change, " "); changed == name {
				value = to
			}
			if value != "none" {
				text += fmt.Sprintf(",%q:%s", name, value)
			}
		}
		return text + "}"
	}
	type entry struct {
		time   int64
		member string
	}
	entries := map[string]entry{
		"Old": {1, record("")}, "FarFuture": {9999999999999999, record("")}, "HeartbeatNow": {now, `"evil"`},
		"NotJSON": {now, "hello"}, "Array": {now, "[1]"}, "Empty": {now, ""},
	}
	for _, change := range []string{
		"channel none", `channel "other"`, "channel 5", "attempt none", `attempt "x"`, "ttl none", "ttl 99999999999",
		"ttl -5", `ttl "a"`, "mode none",
		`mode "y"`, `mode "0"`, "tokens none", "tokens -1", "tokens 1e300", "minhold none",
	} {
		entries[change] = entry{now, record(change)}
	}
	slack := livetest.Slack(t)
	for what, e := range entries {
		name := "job " + what
		l := take(t, d1, request(name, "holder", time.Minute))
		node.Must("ZADD", "snib.q:{"+name+"}", e.time, e.member)
		waiter := wait(t, d2, request(name, "waiter", time.Minute), len(status(t, d1, name).Waiters)+1)
		if err := renew(t, d1, l); err != nil {
			t.Errorf("%s: Renew = %v", what, err)
		}
		free(t, l)
		next, took := granted(t, waiter, enough, what+": the waiter behind it")
		if took > soonEnough+slack() {
			t.Errorf("%s: granted %v after the release", what, took)
		}
		free(t, next)
		// The entry delays nobody if it is alone in the queue, either.
		node.Must("ZADD", "snib.q:{"+name+"}", e.time, e.member)
		free(t, take(t, d2, request(name, "next", time.Minute)))
	}
	nothingLeft(t, node)
}

// TestForeignChannel makes a grant name a channel that is not ours. Our clients publish
// nothing there.
func TestForeignChannel(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	l := take(t, open(t, at(node.Addr())), request("job", "holder", time.Minute))
	before := node.Calls()["publish"]
	node.Must("SET", "job", fmt.Sprintf(
		`{"snib":2,"id":%q,"token":%d,"since":1,"mode":"x","ttl":60000,"minhold":0,"tokens":1,"attempt":"1","channel":"orders"}`,
		l.ID(), token(l)), "PX", 60000)
	queued := ask(node, "off", "waiter", "x", "1")
	if n := node.Calls()["publish"] - before; n != 0 || queued != "q" {
		t.Errorf("the waiter is told %s, want q, and %d messages went to a channel that is not ours", queued, n)
	}
	free(t, l)
	if got := ask(node, "off", "waiter", "x", "2"); got != "g" {
		t.Errorf("after the release the waiter is told %s, want g", got)
	}
}

// TestWildToken sets the last token to a value that Lua can't count beyond. Nothing is granted,
// and the error says why.
func TestWildToken(t *testing.T) {
	t.Parallel()
	for _, wild := range []string{"9007199254740991", "9223372036854775807", "1e300", "nan", "inf"} {
		node := used(t, redistest.Single(t))
		d := open(t, at(node.Addr()))
		l := take(t, d, request("job", "holder", time.Minute))
		node.Must("HSET", "snib.m", "t", wild)
		free(t, l) // a hold can still be released
		for _, mode := range modes {
			req := mode.as(request(mode.name, "holder", time.Minute))
			req.NoWait = true
			got, err := d.Acquire(t.Context(), req)
			if err == nil {
				t.Fatalf("%s: with the last token %s, %d is granted", mode.name, wild, token(got))
			}
			if errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("%s: with the last token %s, Acquire = %v", mode.name, wild, err)
			}
			t.Log(err)
		}
	}
}
