package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/mysqllock"
)

// kinds are the contenders of the benchmarks. The first is the lower bound: GET_LOCK called
// directly, which writes nothing. The second is the least that a lock must cost if its grants
// have a token that survives a crash: it also updates one row.
var kinds = [...]string{"getlock", "token", "rows"}

// opener returns an Opener for a contender. The kind "token" needs the table by_hand, see onEach.
func opener(kind, dsn string) jobtest.Opener {
	return func(ctx context.Context) (jobtest.Contender, func(), error) { return contend(ctx, kind, dsn) }
}

func contend(ctx context.Context, kind, dsn string) (jobtest.Contender, func(), error) {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return nil, nil, err
	}
	switch kind {
	case "rows":
		d, err := mysqllock.New(db)
		if err != nil {
			return nil, nil, err
		}
		return jobtest.By(d, "bench"), func() { d.Close(); db.Close() }, nil
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	get, err1 := conn.PrepareContext(ctx, "SELECT GET_LOCK('by hand', 60)")
	free, err2 := conn.PrepareContext(ctx, "SELECT RELEASE_LOCK('by hand')")
	count, err3 := conn.PrepareContext(ctx, "UPDATE by_hand SET token = LAST_INSERT_ID(token + 1) WHERE name = 'bench'")
	return func(ctx context.Context, _ string) (func(context.Context) error, error) {
		err := one(ctx, get)
		if err == nil && kind == "token" {
			_, err = count.ExecContext(ctx) // the answer contains the token
		}
		return func(ctx context.Context) error { return one(ctx, free) }, err
	}, func() { conn.Close(); db.Close() }, errors.Join(err1, err2, err3)
}

// one runs a query that must return 1.
func one(ctx context.Context, stmt *sql.Stmt) error {
	var n int
	err := stmt.QueryRowContext(ctx).Scan(&n)
	if err == nil && n != 1 {
		err = fmt.Errorf("the server answers %d", n)
	}
	return err
}

// onEach runs a benchmark for each kind, on a server whose commits wait for the disk, and on one
// whose commits don't. The second shows what costs time besides the disk.
func onEach(b *testing.B, run func(b *testing.B, kind, dsn string)) {
	for i, flush := range []string{"on", "off"} {
		// 2 leaves the flushing to the system.
		server := mysqltest.Start(b, fmt.Sprint("innodb-flush-log-at-trx-commit=", i+1))
		db := dial(b, server.DSN())
		must(b, db, "CREATE TABLE by_hand (name VARBINARY(767) PRIMARY KEY, token BIGINT NOT NULL)")
		must(b, db, "INSERT INTO by_hand VALUES ('bench', 0)")
		for _, kind := range kinds {
			b.Run(fmt.Sprintf("flush=%s/%s", flush, kind), func(b *testing.B) { run(b, kind, server.DSN()) })
		}
	}
}

// BenchmarkCycle takes and releases a lock that nobody else wants.
func BenchmarkCycle(b *testing.B) {
	onEach(b, func(b *testing.B, kind, dsn string) { jobtest.Cycle(b, opener(kind, dsn)) })
}

// BenchmarkHandOver lets two processes exchange a lock, and measures from the call of Release to
// the grant in the other process.
func BenchmarkHandOver(b *testing.B) {
	onEach(b, func(b *testing.B, kind, dsn string) {
		jobtest.HandOver(b, opener(kind, dsn), func() *livetest.Child {
			return livetest.StartChild(b, job{Job: jobtest.Job{Role: "exchange"}, DSN: dsn, Kind: kind})
		})
	})
}

// BenchmarkContended lets 64 goroutines of one process contend for one lock. With GET_LOCK each
// goroutine sends its own requests.
func BenchmarkContended(b *testing.B) {
	server := mysqltest.Start(b)
	b.Run("getlock", func(b *testing.B) {
		db := dial(b, server.DSN())
		db.SetMaxIdleConns(64)
		jobtest.Contended(b, func(ctx context.Context) error {
			conn, err := db.Conn(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
			for _, call := range []string{"SELECT GET_LOCK('by hand', 60)", "SELECT RELEASE_LOCK('by hand')"} {
				var n int
				if err := conn.QueryRowContext(ctx, call).Scan(&n); err != nil || n != 1 {
					return fmt.Errorf("%s = %d, %w", call, n, err)
				}
			}
			return nil
		})
	})
	b.Run("rows", func(b *testing.B) { jobtest.ContendedBy(b, newDriver(b, dial(b, server.DSN()))) })
}

// BenchmarkOwnNames takes and releases locks that nobody else wants, with 64 goroutines.
func BenchmarkOwnNames(b *testing.B) {
	server := mysqltest.Start(b, "innodb-flush-log-at-trx-commit=1")
	jobtest.OwnNames(b, newDriver(b, dial(b, server.DSN())))
}
