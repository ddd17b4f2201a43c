package mysqllock_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/mysqllock"
)

// BenchmarkCycle takes and releases a lock that nobody else wants.
func BenchmarkCycle(b *testing.B) {
	server := mysqltest.Start(b)
	db := dial(b, server.DSN())
	b.Run("ByHand", func(b *testing.B) {
		h := newHand(b, db)
		for b.Loop() {
			h.lock(b)
			h.unlock(b)
		}
	})
	for name, d := range map[string]driver.Driver{"Rows": open(b, db), "Session": openSession(b, db)} {
		b.Run(name, func(b *testing.B) {
			release(b, acquire(b, d, ask("cycle", "first")))
			ctx := b.Context()
			for i := 0; b.Loop(); i++ {
				l, err := d.Acquire(ctx, ask("cycle", fmt.Sprint(i)))
				if err == nil {
					err = l.Release(ctx)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHandOver measures the time from the release of one client to the grant of another that has waited for a while.
func BenchmarkHandOver(b *testing.B) {
	server := mysqltest.Start(b)
	b.Run("ByHand", func(b *testing.B) {
		db := dial(b, server.DSN())
		h1, h2 := newHand(b, db), newHand(b, db)
		handOver(b, func() func() time.Time {
			h1.lock(b)
			got := make(chan time.Time)
			go func() { h2.lock(b); got <- time.Now() }()
			time.Sleep(pause) // it waits in the server, which tells nobody
			return func() time.Time {
				h1.unlock(b)
				at := <-got
				h2.unlock(b)
				return at
			}
		})
	})
	for name, open := range map[string]func(testing.TB, *sql.DB, ...mysqllock.Option) *mysqllock.Driver{"Rows": open, "Session": openSession} {
		b.Run(name, func(b *testing.B) {
			d1, d2 := open(b, dial(b, server.DSN())), open(b, dial(b, server.DSN()))
			handOver(b, func() func() time.Time {
				l := acquire(b, d1, ask("hand-over", "a"))
				w := waiting(b, d2, ask("hand-over", "b"))
				time.Sleep(pause)
				return func() time.Time {
					release(b, l)
					next, _ := w.granted(b, time.Now())
					release(b, next)
					return w.at
				}
			})
		})
	}
}

// pause is for how long a lock is held before it is handed over.
const pause = 20 * time.Millisecond

// handOver reports the median and the worst but one in a hundred.
func handOver(b *testing.B, prepare func() (release func() time.Time)) {
	var took []time.Duration
	for b.Loop() {
		release := prepare()
		began := time.Now()
		took = append(took, release().Sub(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(0, "ns/op")
}

// A hand uses GET_LOCK as one does without a library.
type hand struct{ get, release *sql.Stmt }

func newHand(b *testing.B, db *sql.DB) hand {
	b.Helper()
	conn, err := db.Conn(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	prepare := func(text string) *sql.Stmt {
		stmt, err := conn.PrepareContext(context.Background(), text)
		if err != nil {
			b.Fatal(err)
		}
		return stmt
	}
	return hand{prepare("SELECT GET_LOCK('by hand', 60)"), prepare("SELECT RELEASE_LOCK('by hand')")}
}

func (h hand) lock(b *testing.B)   { h.one(b, h.get) }
func (h hand) unlock(b *testing.B) { h.one(b, h.release) }

func (h hand) one(b *testing.B, stmt *sql.Stmt) {
	var n int
	if err := stmt.QueryRow().Scan(&n); err != nil || n != 1 {
		b.Errorf("by hand: %d, %v", n, err)
	}
}
