package etcdlock_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/livetest"
)

func request(name, id string) driver.Request {
	return driver.Request{Name: name, ID: id, TTL: time.Minute}
}

// noWait returns a request that does not wait.
func noWait(name, id string) driver.Request {
	req := request(name, id)
	req.NoWait = true
	return req
}

// newDriver returns a driver that the caller closes.
func newDriver(t testing.TB, client *clientv3.Client, opts ...etcdlock.Option) *etcdlock.Driver {
	t.Helper()
	d, err := etcdlock.New(client, opts...)
	if err != nil {
		t.Fatalf("New = %v", err)
	}
	return d
}

// open returns a driver with a short session.
func open(t testing.TB, client *clientv3.Client) *etcdlock.Driver {
	t.Helper()
	d := newDriver(t, client, etcdlock.Timeout(timeout))
	t.Cleanup(func() { d.Close() })
	return d
}

// The functions that all tests of backends share.
var (
	acquire   = livetest.Acquire
	release   = livetest.Release
	checkHeld = livetest.CheckHeld
)

// keys returns the keys of a lock, in the order of their creation.
func keys(t testing.TB, client *clientv3.Client, name string) (all []string) {
	t.Helper()
	got, err := client.Get(t.Context(), name+"/", clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range got.Kvs {
		all = append(all, string(kv.Key))
	}
	return all
}

// awaitKeys waits until a lock has n keys.
func awaitKeys(t testing.TB, client *clientv3.Client, name string, n int) {
	t.Helper()
	livetest.Await(t, fmt.Sprintf("queue of %d for %s", n, name), func() error {
		if got := keys(t, client, name); len(got) != n {
			return fmt.Errorf("the keys are %q", got)
		}
		return nil
	})
}

// awaitNoKeys waits until a lock has no keys.
func awaitNoKeys(t testing.TB, client *clientv3.Client, name string) { awaitKeys(t, client, name, 0) }

// leaseIn returns the etcd lease in the name of a key.
func leaseIn(t testing.TB, key string) clientv3.LeaseID {
	t.Helper()
	last := key[strings.LastIndexByte(key, '/')+1:]
	hex, _, _ := strings.Cut(last, ".")
	id, err := strconv.ParseInt(hex, 16, 64)
	if err != nil {
		t.Fatalf("the key %q names no lease: %v", key, err)
	}
	return clientv3.LeaseID(id)
}

// containsAll reports whether a text contains all the parts.
func containsAll(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}
