package zklock_test

import (
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

// leaseTTL is how long a holder may rely on a session of a testbed. maxLossDelay is how late it
// may learn of the end of its lease on a machine that is never late.
const (
	leaseTTL     = testbedTimeout * 5 / 12
	maxLossDelay = 100 * time.Millisecond
)

// openDriver returns a driver that the caller closes.
func openDriver(t testing.TB, servers []string, opts ...zklock.Option) *zklock.Driver {
	t.Helper()
	d, err := zklock.New(servers, opts...)
	if err != nil {
		t.Fatalf("New = %v", err)
	}
	return d
}

// newDriver returns a driver with a long session, unless opts ask for a short one.
func newDriver(t testing.TB, servers []string, opts ...zklock.Option) *zklock.Driver {
	t.Helper()
	d := openDriver(t, servers, options(append([]zklock.Option{zklock.Timeout(longTimeout)}, opts...)...)...)
	t.Cleanup(func() { d.Close() })
	return d
}

func request(name, id string) driver.Request {
	return driver.Request{Name: name, ID: id, TTL: time.Minute}
}

// The functions that all tests of backends share.
var (
	acquire   = livetest.Acquire
	release   = livetest.Release
	checkHeld = livetest.CheckHeld
)

// A tree observes ZooKeeper's tree of nodes with a client of its own.
type tree struct {
	*zk.Conn
	t testing.TB
}

type discardLogger struct{}

func (discardLogger) Printf(string, ...any) {}

// newTree returns a client with the rights of the drivers' user.
func newTree(t testing.TB, server string) tree {
	t.Helper()
	tr := newStranger(t, server)
	if err := tr.AddAuth("digest", []byte("snib:"+secret)); err != nil {
		t.Fatal(err)
	}
	return tr
}

// newStranger returns a client without a user.
func newStranger(t testing.TB, server string) tree {
	t.Helper()
	conn, events, err := zk.Connect([]string{server}, 20*time.Second, zk.WithLogger(discardLogger{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	for e := range events {
		if e.State == zk.StateHasSession {
			break
		}
	}
	return tree{conn, t}
}

// children returns the names of the nodes in a folder.
func (tr tree) children(folder string) (names []string) {
	tr.t.Helper()
	livetest.Await(tr.t, "names of the nodes in "+folder, func() (err error) { // the connection may break
		if _, err = tr.Sync(folder); err == nil {
			names, _, err = tr.Children(folder)
		}
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		return err
	})
	return names
}

// awaitChildren waits until a folder has n nodes, and returns their names.
func (tr tree) awaitChildren(folder string, n int) (names []string) {
	tr.t.Helper()
	livetest.Await(tr.t, fmt.Sprintf("line of %d below %s", n, folder), func() error {
		if names = tr.children(folder); len(names) != n {
			return fmt.Errorf("there are %q", names)
		}
		return nil
	})
	return names
}

// nodeOf returns the path of the node in a folder that holds the lock with a token.
func (tr tree) nodeOf(folder string, token uint64) string {
	tr.t.Helper()
	for _, name := range tr.children(folder) {
		if _, stat, err := tr.Exists(folder + "/" + name); err == nil && stat.Czxid == int64(token>>10) {
			return folder + "/" + name
		}
	}
	tr.t.Fatalf("no node in %s has the token %d", folder, token)
	return ""
}

// checkError checks that an error contains all the parts, and no secret.
func checkError(t testing.TB, err error, parts ...string) {
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
