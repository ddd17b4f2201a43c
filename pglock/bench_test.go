package pglock_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

// kinds are the contenders of the benchmarks. The first is the lower bound: pg_advisory_lock
// called directly, which writes nothing. The second is the least that a lock must cost if its
// grants have a token that survives a crash: it also updates one row.
var kinds = [...]string{"advisory", "token", "rows", "session"}

// opener returns an Opener for a contender. The kind "token" needs the table of byHand.
func opener(kind, url string) jobtest.Opener {
	return func(ctx context.Context) (jobtest.Contender, func(), error) { return contend(ctx, kind, url) }
}

func contend(ctx context.Context, kind, url string) (jobtest.Contender, func(), error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	switch kind {
	case "rows", "session":
		d, err := openKind(pool, kind == "session")
		if err != nil {
			return nil, nil, err
		}
		return jobtest.By(d, "bench"), func() { d.Close(); pool.Close() }, nil
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, pool.Close, err
	}
	return func(ctx context.Context, _ string) (func(context.Context) error, error) {
		_, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", 42)
		if err == nil && kind == "token" {
			var token int64
			err = conn.QueryRow(ctx, "UPDATE by_hand SET token = token + 1 WHERE name = $1 RETURNING token",
				"bench").Scan(&token)
		}
		return func(ctx context.Context) error {
			_, err := conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", 42)
			return err
		}, err
	}, func() { conn.Release(); pool.Close() }, nil
}

// byHand creates the table for the kind "token".
func byHand(b *testing.B, server *pgtest.Server) {
	b.Helper()
	must(b, dial(b, server.URL()), `CREATE TABLE by_hand (name text PRIMARY KEY, token bigint NOT NULL) WITH (fillfactor = 50);
		INSERT INTO by_hand VALUES ('bench', 0)`)
}

// onEach runs a benchmark for each kind, on a server whose commits wait for the disk, and on one
// whose commits only pretend to. The second shows what costs time besides the disk.
func onEach(b *testing.B, run func(b *testing.B, kind, url string)) {
	for _, fsync := range []string{"on", "off"} {
		server := pgtest.Start(b, "fsync="+fsync)
		byHand(b, server)
		for _, kind := range kinds {
			b.Run(fmt.Sprintf("fsync=%s/%s", fsync, kind), func(b *testing.B) { run(b, kind, server.URL()) })
		}
	}
}

// BenchmarkCycle takes and releases a lock that nobody else wants.
func BenchmarkCycle(b *testing.B) {
	onEach(b, func(b *testing.B, kind, url string) { jobtest.Cycle(b, opener(kind, url)) })
}

// BenchmarkHandOver lets two processes exchange a lock, and measures from the call of Release to
// the grant in the other process.
func BenchmarkHandOver(b *testing.B) {
	onEach(b, func(b *testing.B, kind, url string) {
		jobtest.HandOver(b, opener(kind, url), func() *livetest.Child {
			return livetest.StartChild(b, job{Job: jobtest.Job{Role: "exchange"}, URL: url, Kind: kind})
		})
	})
}

// BenchmarkContended lets 64 goroutines of one process contend for one lock. With advisory locks
// each goroutine sends its own requests.
func BenchmarkContended(b *testing.B) {
	server := pgtest.Start(b)
	b.Run("advisory", func(b *testing.B) {
		pool := dialWith(b, server.URL(), func(c *pgxpool.Config) { c.MaxConns = 64 })
		jobtest.Contended(b, func(ctx context.Context) error {
			conn, err := pool.Acquire(ctx)
			if err != nil {
				return err
			}
			defer conn.Release()
			if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(42)"); err != nil {
				return err
			}
			_, err = conn.Exec(ctx, "SELECT pg_advisory_unlock(42)")
			return err
		})
	})
	b.Run("rows", func(b *testing.B) { jobtest.ContendedBy(b, newDriver(b, dial(b, server.URL()))) })
}

// BenchmarkOwnNames takes and releases locks that nobody else wants, with 64 goroutines.
func BenchmarkOwnNames(b *testing.B) {
	server := pgtest.Start(b)
	jobtest.OwnNames(b, newDriver(b, dial(b, server.URL())))
}
