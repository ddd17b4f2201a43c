//go:build linux

package nemesis

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/ncruces/go-sqlite3"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/sniblab/internal/pair"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

// An outageStore is a store that can be put out of reach in several ways.
type outageStore struct {
	Store
	outages map[string]func() (end func()) // by name
}

// startOutageStore starts the store of a set-up, with proxies before its servers.
func startOutageStore(t *testing.T, name string) outageStore {
	t.Helper()
	if name == "sqlite" {
		return startOutageSQLite(t)
	}
	w := setupNamed(t, name).newWorld(t, t.TempDir(), 0)
	return outageStore{w.Store, map[string]func() func(){
		"Severed": func() func() { return livetest.All(w.proxies, (*livetest.Proxy).Sever) },
		"Hung":    func() func() { return hangAll(w.servers) },
	}}
}

// startOutageSQLite returns a store that another program can keep busy.
func startOutageSQLite(t *testing.T) outageStore {
	t.Helper()
	file := filepath.Join(t.TempDir(), "locks.db")
	busy := func() func() {
		other, err := sqlite3.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Exec(`PRAGMA busy_timeout = 5000; BEGIN IMMEDIATE`); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := other.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	return outageStore{Store: Store{Kind: "sqlite", Addrs: []string{file}}, outages: map[string]func() func(){"Busy": busy}}
}

// TestOutageBound puts stores out of reach for ever. An acquisition that may wait, and that has no
// deadline, fails after the same time with each of them: whether it is the first contact of its
// process, or the process has connections, or the request stands in the queue behind a holder.
func TestOutageBound(t *testing.T) {
	livetest.Long(t)
	var all sync.WaitGroup // parallel tests would take turns, and these only wait most of the time
	for _, kind := range []string{"redis", "redlock", "pg", "pgsession", "mysql", "zk", "etcd", "sqlite"} {
		all.Go(func() {
			t.Run(kind, func(t *testing.T) {
				s := startOutageStore(t, kind)
				for name, begin := range s.outages {
					t.Run(name, func(t *testing.T) { testOutageBound(t, s, begin) })
				}
			})
		})
	}
	all.Wait()
}

func testOutageBound(t *testing.T, s outageStore, begin func() (end func())) {
	locker := func(d driver.Driver, err error) *snib.Locker {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		l, err := snib.New(d, snib.TTL(max(ttl, d.Info().SessionTTL)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() }) // the store may be out of reach
		return l
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ended sync.WaitGroup
	acquire := func(what string, l *snib.Locker, name string, began func() time.Time) {
		ended.Go(func() {
			lock, err := l.Acquire(ctx, name)
			took := time.Since(began())
			if err == nil {
				_ = lock.Release()
			}
			t.Logf("%s: %.1f s: %v", what, took.Seconds(), err)
			if !errors.Is(err, snib.ErrUnavailable) || errors.Is(err, snib.ErrHeld) {
				t.Errorf("%s: Acquire = %v, want ErrUnavailable", what, err)
			}
			if took < driver.RetryTimeout-100*time.Millisecond || took > driver.RetryTimeout+2*driver.AnswerTimeout {
				t.Errorf("%s: Acquire took %v, want %v to %v", what, took, driver.RetryTimeout, driver.RetryTimeout+2*driver.AnswerTimeout)
			}
		})
	}

	d, err := s.open(t.Context())
	lock, err := locker(d, err).Acquire(ctx, "held")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	idle := locker(s.open(t.Context()))
	if err := idle.Do(ctx, "idle", func(context.Context, *snib.Lock) error { return nil }); err != nil {
		t.Fatal(err)
	}
	queued := locker(s.open(t.Context()))
	outage := make(chan time.Time, 1)
	acquire("queued", queued, "held", func() time.Time { return <-outage })
	livetest.Await(t, "waiter", func() error {
		st, err := d.Status(ctx, "held")
		if err == nil && len(st.Waiters) != 1 {
			err = fmt.Errorf("%d waiters", len(st.Waiters))
		}
		return err
	})
	defer begin()()
	now := time.Now()
	outage <- now
	since := func() time.Time { return now }
	acquire("idle", idle, "idle", since)
	if d, err := s.open(t.Context()); err == nil {
		acquire("fresh", locker(d, nil), "fresh", since)
	} else if took := time.Since(now); took > 2*driver.AnswerTimeout {
		// Redis and Redlock must answer first. TestHungForEver of the command retries that.
		t.Errorf("the driver was opened in vain for %v: %v", took, err)
	}
	ended.Wait()
}

// TestFullThenDown keeps a server full for longer than an outage is tolerated, and then takes it
// down for a while. An acquisition goes on waiting: the time in which the server was full does not
// count.
func TestFullThenDown(t *testing.T) {
	livetest.Long(t)
	const outage = 15 * time.Second // longer than all pauses between two requests
	var all sync.WaitGroup
	for _, kind := range []string{"pg", "mysql"} {
		all.Go(func() {
			t.Run(kind, func(t *testing.T) {
				var s pair.Server
				store := Store{Kind: kind}
				var name, dsn string
				if kind == "pg" {
					pg := pgtest.Start(t, "max_connections=10", "superuser_reserved_connections=0")
					s, store.Addrs, name, dsn = pg, []string{pg.Addr()}, "pgx", pg.URL()
				} else {
					my := mysqltest.Start(t, "max-connections=10")
					s, store.Addrs, name, dsn = my, []string{my.Addr()}, "mysql", my.DSN()
				}
				d, err := store.open(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				l, err := snib.New(d)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				others, err := sql.Open(name, dsn)
				if err != nil {
					t.Fatal(err)
				}
				defer others.Close()
				for others.Stats().OpenConnections < 20 {
					if _, err := others.Conn(t.Context()); err != nil {
						break
					}
				}
				done := make(chan error, 1)
				go func() {
					lock, err := l.Acquire(t.Context(), "name")
					if err == nil {
						err = lock.Release()
					}
					done <- err
				}()
				for _, step := range []struct {
					what string
					do   func()
					wait time.Duration
				}{
					{"full", func() {}, driver.RetryTimeout + 5*time.Second},
					{"down", s.Kill, outage},
				} {
					step.do()
					select {
					case err := <-done:
						t.Fatalf("Acquire returned %v while the server was %s", err, step.what)
					case <-time.After(step.wait):
					}
				}
				s.Restart()
				if err := <-done; err != nil {
					t.Errorf("Acquire = %v, want the lock", err)
				}
			})
		})
	}
	all.Wait()
}
