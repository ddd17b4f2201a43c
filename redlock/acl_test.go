package redlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redlock"
)

// TestACL uses the ACL users from the backend's documentation. Each can do what it is for, and
// nothing else.
func TestACL(t *testing.T) {
	t.Parallel()
	if !redistest.AtLeast(t, 7, 0) {
		t.Skip("before Redis 7 there are no such rights")
	}
	users := redistest.UsersOf(t, "../docs/backends/redlock.md", password)
	if len(users) != 2 {
		t.Fatalf("the page has the users %q, want two", users)
	}
	c := start(t, 3, users...)
	c.init(t)
	as := func(user string) *redlock.Driver {
		servers := append(c.servers[:0:0], c.servers...)
		for i := range servers {
			servers[i].Username = user
		}
		return open(t, servers)
	}
	d1, d2 := as("locks"), as("locks")
	lost := make(chan error, 1)
	req := request("jobs/a", "first", time.Minute)
	l := acquire(t, d1, req)
	w := livetest.Waiting(t, d2, request("jobs/a", "second", time.Minute))
	if err := renew(t, d1, l); err != nil {
		t.Errorf("Renew = %v", err)
	}
	release(t, l)
	release(t, w.Get(t))
	req.OnLost = func(err error) { lost <- err }
	l = acquire(t, d1, req)
	names := 0
	err := answer(t, func() error {
		names = 0
		return d2.List(t.Context(), "jobs/", func(driver.Status) bool { names++; return true })
	})
	if err != nil || names != 1 {
		t.Errorf("List = %d locks, %v, want one", names, err)
	}
	if err := breakHold(t, d2, "jobs/a", l.ID()); err != nil {
		t.Errorf("Break = %v", err)
	}
	select {
	case <-lost:
	case <-time.After(testTimeout):
		t.Error("the holder was not told of a Break")
	}

	denied := func(d driver.Driver, name string) {
		t.Helper()
		if l, err := tryAcquire(t, d, request(name, "intruder", time.Minute)); err == nil || errors.Is(err, driver.ErrHeld) {
			t.Errorf("Acquire of %q = %v, %v, want what the servers say of rights", name, l, err)
		}
	}
	denied(d1, "other")
	l = acquire(t, d1, request("jobs/b", "holder", time.Minute))
	watch := as("watch")
	if st, err := statusOf(t, watch, "jobs/b"); err != nil || len(st.Holders) != 1 || st.Holders[0].Token != token(l) {
		t.Errorf("Status by watch = %+v, %v", st, err)
	}
	denied(watch, "jobs/c")
	if err := watch.Break(t.Context(), "jobs/b", l.ID()); err == nil {
		t.Error("Break by watch = nil")
	}
	for _, command := range [][]any{{"PUBLISH", "snib.rw:jobs/b", "1"}, {"DEL", "jobs/b"},
		{"HSET", "snib.redlock", "c0", "1"}} {
		for _, n := range c.nodes {
			if got, err := n.Do(append([]any{"ACL", "DRYRUN", "watch"}, command...)...); err == nil && got == "OK" {
				t.Errorf("watch may %v", command)
			}
		}
	}
	release(t, l)
}
