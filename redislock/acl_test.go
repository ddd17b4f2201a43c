package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redislock/redisadmin"
)

// TestACL uses the ACL users from the backend's documentation. Each can do what it is for, and
// nothing else.
func TestACL(t *testing.T) {
	t.Parallel()
	if !redistest.AtLeast(t, 7, 0) {
		t.Skip("before Redis 7 there are no such rights")
	}
	users := slices.DeleteFunc(redistest.UsersOf(t, "../docs/backends/redislock.md", secret), func(line string) bool {
		return strings.HasPrefix(line, "user other ")
	})
	if len(users) != 2 {
		t.Fatalf("the page has the users %q, want two and another", users)
	}
	node := used(t, redistest.Single(t, append(users, "user other on >"+secret+" ~other:* +@all resetchannels")...))
	openAs := func(user string) *redislock.Driver { return open(t, as(node, user), redislock.GraceFloor(distantTTL)) }
	d1, d2 := openAs("locks"), openAs("locks")
	slack := livetest.Slack(t)
	for _, mode := range modes {
		name := "jobs/" + mode.name
		// The TTL is longer than the floor.
		req := func(id string) driver.Request { return mode.as(request(name, id, time.Minute)) }
		blocker := req("holder")
		blocker.Shared = false
		l := take(t, d1, blocker)
		others := []driver.Lease{}
		for range max(0, blocker.Slots-1) {
			others = append(others, take(t, d1, req("another holder")))
		}
		waiter := wait(t, d2, req("waiter"), 1)
		if err := renew(t, d1, l); err != nil {
			t.Errorf("Renew = %v", err)
		}
		free(t, l)
		_, took := granted(t, waiter, enough, "waiter")
		if took > soonEnough+slack() {
			t.Errorf("%s: granted %v after the release, and not at once", mode.name, took)
		}
		if got := list(t, d1, "jobs/"); len(got) != 1 {
			t.Errorf("List = %q", got)
		}
		if err := d1.Break(t.Context(), name, "waiter"); err != nil {
			t.Errorf("Break = %v", err)
		}
		for _, l := range others {
			free(t, l)
		}
		short := req("short")
		short.TTL = distantTTL // no longer than the floor
		free(t, take(t, d1, short))
	}
	if _, err := d1.Admin().Servers(t.Context()); err != nil {
		t.Errorf("Servers = %v", err)
	}
	denied := func(d driver.Driver, name string) {
		t.Helper()
		req := request(name, "intruder", time.Minute)
		req.NoWait = true
		if l, err := d.Acquire(t.Context(), req); err == nil || errors.Is(err, driver.ErrHeld) ||
			errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("Acquire of %q = %v, %v, want what the server says of rights", name, l, err)
		}
	}
	denied(d1, "other")
	forbiddenBeside(t, d1)
	l := take(t, d1, request("jobs/x", "holder", time.Minute))
	watch := openAs("watch")
	if st := status(t, watch, "jobs/x"); len(st.Holders) != 1 || st.Holders[0].Token != token(l) {
		t.Errorf("Status by watch = %+v", st)
	}
	denied(watch, "jobs/y")
	node.Must("HSET", "jobs/redisson", redissonThread, 2)
	if st := status(t, watch, "jobs/redisson"); len(st.Holders) != 1 || st.Holders[0].Count != 2 {
		t.Errorf("Status of a lock of Redisson by watch = %+v", st)
	}
	if err := d1.Break(t.Context(), "jobs/redisson", redissonThread); !errors.Is(err, driver.ErrKind) ||
		!strings.Contains(err.Error(), "forceUnlock") {
		t.Errorf("Break of a lock of Redisson = %v, want how to end it", err)
	}
	node.Must("SET", "jobs/foreign", "an endless key")
	for user, d := range map[string]*redislock.Driver{"locks": d1, "watch": watch} {
		found := 0
		err := errors.Join(
			d.Admin().Foreign(t.Context(), "jobs/", func(driver.Status) bool { found++; return true }),
			d.Admin().Strangers(t.Context(), "jobs/", func(redisadmin.Stranger) bool { found++; return true }))
		if err != nil || found != 2*2 {
			t.Errorf("Foreign and Strangers by %s = %v, with %d keys, want two for each", user, err, found)
		}
	}
	node.Must("DEL", "jobs/redisson", "jobs/foreign")
	if err := watch.Break(t.Context(), "jobs/x", l.ID()); err == nil {
		t.Error("Break by watch = nil")
	}
	for _, user := range []string{"other", "watch"} {
		if got, err := node.Do("ACL", "DRYRUN", user, "PUBLISH", "snib.c:x", "1 k"); err == nil && got == "OK" {
			t.Errorf("%s may publish to waiters", user)
		}
	}
	free(t, l)
	nothingLeft(t, node)
}

// TestErrorIsNoLoss checks that an error of the server, here for want of a right, never passes for
// the end of a hold: the lease lives, and can be renewed and released when the error is gone.
func TestErrorIsNoLoss(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t, "user app on >"+secret+" ~* &* +@all"))
	d := open(t, as(node, "app"))
	for _, mode := range modes {
		l := take(t, d, mode.as(request(mode.name, "holder", time.Minute)))
		right := "get"
		if mode.name != "Exclusive" {
			right = "hget"
		}
		node.Must("ACL", "SETUSER", "app", "-"+right)
		for what, err := range map[string]error{
			"Renew": renew(t, d, l), "Renew by id": renew(t, d, d.Lease(mode.name, l.ID(), time.Minute)),
			"SetHolder": l.SetHolder(t.Context(), driver.Holder{}), "Release": l.Release(t.Context()),
			"Break": d.Break(t.Context(), mode.name, l.ID()),
		} {
			if err == nil || errors.Is(err, driver.ErrLost) {
				t.Errorf("%s without the right to %s = %v, want the server's error", what, right, err)
			}
		}
		node.Must("ACL", "SETUSER", "app", "+"+right)
		if err := renew(t, d, l); err != nil {
			t.Errorf("Renew with the right to %s = %v", right, err)
		}
		free(t, l)
	}
}

// TestLongLeaseIsKnownAfterRenewal checks that the store knows how long a renewed lease lives, also
// if it is renewed together with one whose name is forbidden.
func TestLongLeaseIsKnownAfterRenewal(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t, "user app on >"+secret+" ~* &* +@all"))
	d := open(t, as(node, "app"))
	ours, theirs := take(t, d, request("ours", "holder", time.Minute)), take(t, d, request("theirs", "holder", time.Minute))
	for _, rights := range [][]any{{"~*"}, {"resetkeys", "~ours", "~snib.*"}} {
		node.Must(append([]any{"ACL", "SETUSER", "app"}, rights...)...)
		end := node.Must("ZSCORE", "snib.g", `60000 "holder" ours`)
		r := d.Renew(t.Context(), []driver.Lease{theirs, ours})
		if renewed := node.Must("ZSCORE", "snib.g", `60000 "holder" ours`); r[1].Err != nil || renewed == nil || renewed == end {
			t.Errorf("with %q: Renew = %v, and the end of the lease is listed as %v, before as %v", rights, r[1].Err, renewed, end)
		}
		if forbidden := len(rights) > 1; (r[0].Err != nil) != forbidden || errors.Is(r[0].Err, driver.ErrLost) {
			t.Errorf("with %q: Renew of the other lease = %v", rights, r[0].Err)
		}
	}
}

// TestPrefix locks as users that may use the keys and channels of one prefix only. They see no
// other tenant's locks, and what another writes to its keys does not touch theirs.
func TestPrefix(t *testing.T) {
	t.Parallel()
	if !redistest.AtLeast(t, 7, 0) {
		t.Skip("before Redis 7 there are no such rights")
	}
	var users []string
	for _, user := range []string{"app", "web"} {
		users = append(users, "user "+user+" on >"+secret+" resetchannels ~"+user+":* &"+user+":* +@all")
	}
	node := redistest.Single(t, users...)
	openAs := func(user string) *redislock.Driver {
		return open(t, as(node, user), redislock.Prefix(user+":"), redislock.FailoverGrace(false))
	}
	d1, d2, other := openAs("app"), openAs("app"), openAs("web")
	for _, mode := range modes {
		req := func(id string) driver.Request { return mode.as(request("jobs/"+mode.name, id, time.Minute)) }
		l := take(t, d1, req("holder"))
		last := l
		if mode.name == "Slots" {
			last = take(t, d1, req("second holder"))
		}
		writer := req("waiter")
		if mode.name == "Shared" {
			writer.Shared = false
		}
		waiter := wait(t, d2, writer, 1)
		theirs := take(t, other, req("another tenant"))
		node.Must("HSET", "web:snib.m", "t", "9007199254740990") // which ends their locks, and no others
		if err := renew(t, d1, l); err != nil {
			t.Errorf("%s: Renew = %v", mode.name, err)
		}
		if got := list(t, d1, "jobs/"); len(got) != 1 || got[0] != "jobs/"+mode.name {
			t.Errorf("List = %q, want the name without the namespace", got)
		}
		free(t, last)
		next, _ := granted(t, waiter, enough, "waiter")
		if err := d1.Break(t.Context(), "jobs/"+mode.name, "waiter"); err != nil {
			t.Errorf("%s: Break = %v", mode.name, err)
		}
		if err := renew(t, d2, next); !errors.Is(err, driver.ErrLost) {
			t.Errorf("%s: Renew of what was broken = %v, want ErrLost", mode.name, err)
		}
		if last != l {
			free(t, l)
		}
		_ = theirs.Release(t.Context())
		node.Must("HDEL", "web:snib.m", "t")
	}
	keys, _ := node.Must("KEYS", "*").([]any)
	for _, key := range keys {
		if text := fmt.Sprint(key); !strings.HasPrefix(text, "app:snib.m") && !strings.HasPrefix(text, "web:") {
			t.Errorf("the key %q is left", text)
		}
	}
	for _, wrong := range []string{"a{b", "}", strings.Repeat("x", 101), "a\x00", "\xff", `a"`} {
		if d, err := redislock.Open(t.Context(), at(node.Addr()), redislock.Prefix(wrong)); !errors.Is(err,
			driver.ErrInvalid) {
			t.Errorf("Open with the namespace %q = %v, %v, want ErrInvalid", wrong, d, err)
		}
	}
}

// forbiddenBeside acquires and releases locks while others of the same process ask for a name that
// their user may not use. Requests that are sent together do not share that fate.
func forbiddenBeside(t *testing.T, d *redislock.Driver) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var forbidden sync.WaitGroup
	for range 8 {
		forbidden.Go(func() {
			req := request("other", "intruder", time.Minute)
			req.NoWait = true
			for ctx.Err() == nil {
				if l, err := d.Acquire(ctx, req); err == nil {
					t.Errorf("Acquire of a name that is forbidden = %v", l)
				}
			}
		})
	}
	var allowed sync.WaitGroup
	for i := range 8 {
		allowed.Go(func() {
			for n := range 20 {
				req := request(fmt.Sprint("jobs/beside ", i), fmt.Sprint("holder ", n), time.Minute)
				req.NoWait = true
				l, err := d.Acquire(t.Context(), req)
				if err == nil {
					err = l.Release(t.Context())
				}
				if err != nil {
					t.Errorf("Acquire and Release beside a name that is forbidden: %v", err)
					return
				}
			}
		})
	}
	allowed.Wait()
	cancel()
	forbidden.Wait()
}
