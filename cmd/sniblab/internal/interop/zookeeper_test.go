package interop_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/zktest"
	"github.com/sniblock/snib/zklock"
)

// A zkForeignLocker acquires locks in ZooKeeper with another library. A kind is "mutex", "read" or
// "write", or of a semaphore: "semmutex" or "semaphore".
type zkForeignLocker interface {
	fmt.Stringer

	// lock waits for at most wait, and reports whether it has got the lock.
	lock(t testing.TB, kind, path string, wait time.Duration) (unlock func(), got bool)
}

// A goZK acquires locks with go-zookeeper, which can't cancel a wait.
type goZK struct{ servers []string }

func (goZK) String() string { return "go-zookeeper" }

func (g goZK) lock(t testing.TB, _, path string, wait time.Duration) (unlock func(), got bool) {
	t.Helper()
	conn, _, err := zk.Connect(g.servers, 10*time.Second, zk.WithLogger(log.New(io.Discard, "", 0)))
	if err != nil {
		t.Fatal(err)
	}
	lock := zk.NewLock(conn, path, zk.WorldACL(zk.PermAll))
	done := make(chan error, 1)
	go func() { done <- lock.Lock() }()
	select {
	case err = <-done:
	case <-time.After(wait):
		conn.Close() // its place in the queue ends with its session
		return nil, false
	}
	if err != nil {
		t.Errorf("go-zookeeper's Lock = %v", err)
		conn.Close()
		return nil, false
	}
	return func() {
		if err := lock.Unlock(); err != nil {
			t.Errorf("go-zookeeper's Unlock = %v", err)
		}
		conn.Close()
	}, true
}

// startCurator starts a process that acquires locks with Apache Curator. See testdata/Curator.java.
func startCurator(t *testing.T, addr string) zkAgent {
	t.Helper()
	java := zktest.Java(t)
	const jars = "/usr/share/java/"
	if found, err := filepath.Glob(jars + "curator-recipes.jar"); err != nil || len(found) == 0 {
		livetest.Missing(t, "zookeeper", "Curator is not installed")
	}
	var path []string
	for _, jar := range []string{"curator-recipes", "curator-framework", "curator-client", "zookeeper",
		"guava", "slf4j-nop"} {
		path = append(path, jars+jar+".jar")
	}
	return zkAgent{"Curator", startAgent(t, addr, exec.Command(java, "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", strings.Join(path, ":"),
		filepath.Join("testdata", "Curator.java")))}
}

// startKazoo starts a process that acquires locks with kazoo. See python/zookeeper.py.
func startKazoo(t *testing.T, addr string) zkAgent {
	return zkAgent{"kazoo", startAgent(t, addr, python(t)("zookeeper.py"))}
}

// A zkAgent acquires locks by an agent, which gets the time to wait as a TTL.
type zkAgent struct {
	library string
	agent   *agent
}

func (a zkAgent) String() string { return a.library }

func (a zkAgent) lock(t testing.TB, kind, path string, wait time.Duration) (unlock func(), got bool) {
	t.Helper()
	h, err := a.agent.acquire(t.Context(), agentRequest{Order: "acquire", Name: kind + " " + path, TTL: wait.Milliseconds()})
	switch {
	case errors.Is(err, errRefused):
		return nil, false
	case err != nil:
		t.Errorf("%s: acquire = %v", a, err)
		return nil, false
	}
	return func() {
		if err := h.release(); err != nil {
			t.Errorf("%s: release = %v", a, err)
		}
	}, true
}

// A zkPair describes two requests for one lock: the kind of the other library's
// request, and whether ours is shared.
type zkPair struct {
	kind     string
	shared   bool
	together bool // they may hold the lock at the same time
}

const shortWait = 300 * time.Millisecond

func TestGoZooKeeper(t *testing.T) {
	server := zktest.Single(t)
	f := goZK{[]string{server.Addr()}}
	for _, opts := range [][]zklock.Option{nil, {zklock.CuratorReadWrite()}} {
		d := newZK(t, server, opts...)
		checkZKExclusion(t, d, f, zkPair{kind: "mutex"})
		checkZKExclusion(t, d, f, zkPair{kind: "mutex", shared: true})
	}
}

func TestCurator(t *testing.T) {
	server := zktest.Single(t)
	f := startCurator(t, server.Addr())
	checkZKExclusion(t, newZK(t, server), f, zkPair{kind: "mutex"})
	d := newZK(t, server, zklock.CuratorReadWrite())
	checkZKExclusion(t, d, f, zkPair{kind: "write"})
	checkZKExclusion(t, d, f, zkPair{kind: "write", shared: true})
	checkZKExclusion(t, d, f, zkPair{kind: "read"})
	checkZKExclusion(t, d, f, zkPair{kind: "read", shared: true, together: true})
}

// TestZooKeeperSemaphores has semaphores of other libraries on the path of a lock.
func TestZooKeeperSemaphores(t *testing.T) {
	server := zktest.Single(t, zktest.Production) // it keeps empty folders for a minute
	d := newZK(t, server)
	t.Run("Curator", func(t *testing.T) {
		f := startCurator(t, server.Addr())
		for _, kind := range []string{"semmutex", "semaphore"} {
			checkZKKind(t, d, f, kind)
		}
	})
	t.Run("Kazoo", func(t *testing.T) {
		f := startKazoo(t, server.Addr())
		checkZKKind(t, d, f, "semaphore")

		// On a folder that we have made, kazoo fails.
		l, err := zkAcquire(t, d, "ours", false, true)
		if err != nil {
			t.Fatal(err)
		}
		if h, err := f.agent.try("semaphore /ours", longTTL); err == nil || errors.Is(err, errRefused) {
			t.Errorf("kazoo's semaphore on the path of our lock = %v, %v; want an error of kazoo", h, err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("Release = %v", err)
		}
	})
}

// checkZKKind checks that we refuse a name that the other library uses as a semaphore, and that
// this does not disturb it.
func checkZKKind(t *testing.T, d *zklock.Driver, f zkForeignLocker, kind string) {
	t.Helper()
	name := fmt.Sprintf("%s-%s", f, kind)
	unlock, got := f.lock(t, kind, "/"+name, livetest.Patience)
	if !got {
		t.Fatalf("%s: the other library does not get a free semaphore", kind)
	}
	check := func(when string) {
		t.Helper()
		for _, noWait := range []bool{true, false} {
			for _, shared := range []bool{true, false} {
				if _, err := zkAcquire(t, d, name, shared, noWait); !errors.Is(err, driver.ErrKind) {
					t.Errorf("%s: Acquire (shared %v, NoWait %v) %s = %v, want ErrKind", kind, shared, noWait, when, err)
				}
			}
		}
		st, err := d.Status(t.Context(), name)
		if err != nil || len(st.Holders) != 1 || !strings.Contains(st.Holders[0].Foreign, "semaphore") {
			t.Errorf("%s: Status %s = %+v, %v; want a semaphore", kind, when, st, err)
		}
	}
	check("while the other library holds it")
	unlock()
	check("after its release")
	if unlock, got = f.lock(t, kind, "/"+name, livetest.Patience); !got {
		t.Fatalf("%s: the other library does not get the semaphore again", kind)
	}
	unlock()
}

// TestKazoo has kazoo's Lock, with our names among its patterns.
func TestKazoo(t *testing.T) {
	server := zktest.Single(t)
	f := startKazoo(t, server.Addr())
	d := newZK(t, server)
	checkZKExclusion(t, d, f, zkPair{kind: "mutex"})
	checkZKExclusion(t, d, f, zkPair{kind: "mutex", shared: true})
}

func newZK(t *testing.T, server *zktest.Server, opts ...zklock.Option) *zklock.Driver {
	d, err := zklock.New([]string{server.Addr()}, append(opts, zklock.Root("/"))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func zkAcquire(t testing.TB, d *zklock.Driver, name string, shared, noWait bool) (driver.Lease, error) {
	ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
	defer cancel()
	return d.Acquire(ctx, driver.Request{Name: name, ID: "snib", TTL: time.Minute, Shared: shared, NoWait: noWait})
}

// checkZKExclusion checks that each side excludes the other, both when it tries and
// when it waits.
func checkZKExclusion(t *testing.T, d *zklock.Driver, f zkForeignLocker, p zkPair) {
	t.Helper()
	name := fmt.Sprintf("%s-%s-%v-%p", f, p.kind, p.shared, d)
	unlock, got := f.lock(t, p.kind, "/"+name, livetest.Patience)
	if !got {
		t.Fatalf("%+v: the other library does not get a free lock", p)
	}
	l, err := zkAcquire(t, d, name, p.shared, true)
	if p.together {
		if err != nil {
			t.Fatalf("%+v: beside the other library we get %v, want a lease", p, err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("Release = %v", err)
		}
		unlock()
		return
	}
	if !errors.Is(err, driver.ErrHeld) {
		t.Errorf("%+v: while the other library holds we get %v, want ErrHeld", p, err)
	}
	var released atomic.Bool
	ours := make(chan error, 1)
	go func() {
		var err error
		if l, err = zkAcquire(t, d, name, p.shared, false); err == nil && !released.Load() {
			err = errors.New("we got the lock before the other library released it")
		}
		ours <- err
	}()
	awaitZKWaiter(t, d, name)
	released.Store(true)
	unlock()
	if err := <-ours; err != nil {
		t.Fatalf("%+v: %v", p, err)
	}
	if unlock, got := f.lock(t, p.kind, "/"+name, shortWait); got {
		unlock()
		t.Errorf("%+v: the other library gets the lock while we hold it", p)
	}
	released.Store(false)
	theirs := make(chan error, 1)
	go func() {
		unlock, got := f.lock(t, p.kind, "/"+name, livetest.Patience)
		switch {
		case !got:
			theirs <- errors.New("the other library waited, and did not get the lock")
		case !released.Load():
			theirs <- errors.New("the other library got the lock before we released it")
		default:
			unlock()
			theirs <- nil
		}
	}()
	awaitZKWaiter(t, d, name)
	released.Store(true)
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("Release = %v", err)
	}
	if err := <-theirs; err != nil {
		t.Errorf("%+v: %v", p, err)
	}
}

// awaitZKWaiter waits until the lock has one holder and one waiter.
func awaitZKWaiter(t testing.TB, d *zklock.Driver, name string) {
	t.Helper()
	livetest.Await(t, "holder and waiter", func() error {
		st, err := d.Status(t.Context(), name)
		if len(st.Holders) != 1 || len(st.Waiters) != 1 {
			return fmt.Errorf("status %+v, %w", st, err)
		}
		return nil
	})
}

// TestZooKeeperTogether has all three libraries contend for a lock, and checks that
// only one holds it at a time.
func TestZooKeeperTogether(t *testing.T) {
	server := zktest.Single(t)
	d := newZK(t, server)
	foreigners := []zkForeignLocker{goZK{[]string{server.Addr()}}, startCurator(t, server.Addr())}
	const rounds = 15
	var inside, uses atomic.Int32
	use := func() {
		if inside.Add(1) != 1 {
			t.Error("two are inside at once")
		}
		uses.Add(1)
		time.Sleep(time.Millisecond) // time for a second holder to come in
		inside.Add(-1)
	}
	var running sync.WaitGroup
	for _, f := range foreigners {
		running.Go(func() {
			for range rounds {
				unlock, got := f.lock(t, "mutex", "/together", livetest.Patience)
				if !got {
					t.Errorf("%s did not get its turn", f)
					return
				}
				use()
				unlock()
			}
		})
	}
	running.Go(func() {
		for range rounds {
			l, err := zkAcquire(t, d, "together", false, false)
			if err != nil {
				t.Errorf("we did not get our turn: %v", err)
				return
			}
			use()
			if err := l.Release(t.Context()); err != nil {
				t.Errorf("Release = %v", err)
			}
		}
	})
	running.Wait()
	if got := uses.Load(); got != 3*rounds {
		t.Errorf("the lock was used %d times, want %d", got, 3*rounds)
	}
}
