package pglock_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/pglock"
)

// A contender takes one lock, and returns what gives it up.
type contender func(ctx context.Context, owner string) (release func(context.Context) error, err error)

// contenders makes each kind of contender for a server: the floor is pg_advisory_lock by hand, on a connection of its own.
func contenders(b *testing.B, server *pgtest.Server) map[string]func() contender {
	pool := func() *pgxpool.Pool { return dial(b, server.URL()) }
	by := func(d driver.Driver) contender {
		return func(ctx context.Context, owner string) (func(context.Context) error, error) {
			l, err := d.Acquire(ctx, request("bench", owner))
			if err != nil {
				return nil, err
			}
			return l.Release, nil
		}
	}
	return map[string]func() contender{
		"rows":    func() contender { return by(newDriver(b, pool())) },
		"session": func() contender { return by(newSession(b, pool())) },
		"floor": func() contender {
			conn, err := pool().Acquire(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(conn.Release)
			exec := func(ctx context.Context, sql string) error {
				_, err := conn.Exec(ctx, sql, 42)
				return err
			}
			return func(ctx context.Context, _ string) (func(context.Context) error, error) {
				return func(ctx context.Context) error { return exec(ctx, "SELECT pg_advisory_unlock($1)") },
					exec(ctx, "SELECT pg_advisory_lock($1)")
			}
		},
	}
}

// kinds are the contenders, in order.
func kinds() []string { return []string{"floor", "rows", "session"} }

// BenchmarkCycle takes and releases a lock that nobody else wants. Without fsync it shows what waits for the disk.
func BenchmarkCycle(b *testing.B) {
	for _, fsync := range []string{"on", "off"} {
		server := pgtest.Start(b, "fsync="+fsync)
		all := contenders(b, server)
		for _, kind := range kinds() {
			b.Run(fmt.Sprintf("fsync=%s/%s", fsync, kind), func(b *testing.B) {
				acquire, n := all[kind](), 0
				for b.Loop() {
					n++
					release, err := acquire(b.Context(), fmt.Sprint(n))
					if err != nil {
						b.Fatal(err)
					}
					if err := release(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkHandOver measures from the call of a release to the grant in another driver that waited.
func BenchmarkHandOver(b *testing.B) {
	for _, fsync := range []string{"on", "off"} {
		server := pgtest.Start(b, "fsync="+fsync)
		all := contenders(b, server)
		for _, kind := range kinds() {
			b.Run(fmt.Sprintf("fsync=%s/%s", fsync, kind), func(b *testing.B) { handOver(b, all[kind]) })
		}
	}
}

func handOver(b *testing.B, open func() contender) {
	type held struct {
		release func(context.Context) error
		at      time.Time
		err     error
	}
	two, n := []contender{open(), open()}, 0
	ask := func() <-chan held {
		n++
		got, owner, from := make(chan held, 1), fmt.Sprint(n), two[n%2]
		go func() {
			release, err := from(b.Context(), owner)
			got <- held{release, time.Now(), err}
		}()
		return got
	}
	var took []time.Duration
	now := <-ask()
	for b.Loop() {
		next := ask()
		time.Sleep(3 * time.Millisecond) // so that it waits
		began := time.Now()
		if err := now.release(b.Context()); err != nil {
			b.Fatal(err)
		}
		if now = <-next; now.err != nil {
			b.Fatal(now.err)
		}
		took = append(took, now.at.Sub(began))
	}
	if err := now.release(b.Context()); err != nil {
		b.Fatal(err)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(took[len(took)*95/100].Nanoseconds())/1e3, "p95-µs")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkContended has 64 goroutines of one process want one lock. By hand each has to ask the server.
func BenchmarkContended(b *testing.B) {
	server := pgtest.Start(b)
	const goroutines = 64
	run := func(b *testing.B, cycle func() error) {
		b.SetParallelism(goroutines / runtime.GOMAXPROCS(0))
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := cycle(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	b.Run("floor", func(b *testing.B) {
		pool := dialWith(b, server.URL(), func(c *pgxpool.Config) { c.MaxConns = goroutines })
		run(b, func() error {
			conn, err := pool.Acquire(b.Context())
			if err != nil {
				return err
			}
			defer conn.Release()
			if _, err := conn.Exec(b.Context(), "SELECT pg_advisory_lock(42)"); err != nil {
				return err
			}
			_, err = conn.Exec(b.Context(), "SELECT pg_advisory_unlock(42)")
			return err
		})
	})
	b.Run("rows", func(b *testing.B) {
		locker, err := snib.New(pglock.New(dial(b, server.URL())))
		if err != nil {
			b.Fatal(err)
		}
		defer locker.Close()
		run(b, func() error {
			lock, err := locker.Acquire(b.Context(), "contended")
			if err != nil {
				return err
			}
			return lock.Release()
		})
	})
}
