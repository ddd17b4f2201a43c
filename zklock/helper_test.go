package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/zklock"
)

// lease is what such a session is worth to a holder, and alarm how late it may be told that this is over, but for the machine.
const (
	lease = timeout * 5 / 12
	alarm = 100 * time.Millisecond
)

func newDriver(t testing.TB, servers []string, opts ...zklock.Option) *zklock.Driver {
	t.Helper()
	d := zklock.New(servers, options(opts...)...)
	t.Cleanup(func() { d.Close() })
	return d
}

func request(name, owner string) driver.Request {
	return driver.Request{Name: name, Owner: owner, TTL: time.Minute}
}

// acquire takes a lease that must be granted.
func acquire(t testing.TB, d driver.Driver, req driver.Request) driver.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
	defer cancel()
	l, err := d.Acquire(ctx, req)
	if err != nil {
		t.Fatalf("Acquire of %q for %s = %v", req.Name, req.Owner, err)
	}
	return l
}

func release(t testing.TB, l driver.Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
	defer cancel()
	if err := l.Release(ctx); err != nil {
		t.Fatalf("Release = %v", err)
	}
}

// refused checks that a lock is held.
func refused(t testing.TB, d driver.Driver, name, when string) {
	t.Helper()
	req := request(name, "a stranger")
	req.NoWait = true
	if _, err := d.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire with NoWait %s = %v, want ErrHeld", when, err)
	}
}

// A tree looks at ZooKeeper from beside.
type tree struct {
	*zk.Conn
	t testing.TB
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func newTree(t testing.TB, server string) tree {
	t.Helper()
	conn, events, err := zk.Connect([]string{server}, 20*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	for e := range events {
		if e.State == zk.StateHasSession {
			break
		}
	}
	if err := conn.AddAuth("digest", []byte("snib:"+secret)); err != nil {
		t.Fatal(err)
	}
	return tree{conn, t}
}

// line returns the children of a folder.
func (tr tree) line(folder string) []string {
	tr.t.Helper()
	if _, err := tr.Sync(folder); err != nil {
		tr.t.Fatal(err)
	}
	names, _, err := tr.Children(folder)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		tr.t.Fatal(err)
	}
	return names
}

// await waits until a folder has so many children, and returns them.
func (tr tree) await(folder string, n int) (names []string) {
	tr.t.Helper()
	livetest.Await(tr.t, fmt.Sprintf("line of %d below %s", n, folder), func() error {
		if names = tr.line(folder); len(names) != n {
			return fmt.Errorf("there are %q", names)
		}
		return nil
	})
	return names
}

// says checks that an error has all the parts, and no secret.
func says(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error %q does not say %q", err, part)
		}
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("the error %q has a password in it", err)
	}
}
