package pglock_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/pglock"
)

// shared is the server of tests that only need a database.
var shared livetest.Shared[*pgtest.Server]

func database(t testing.TB) *pgtest.Server {
	t.Helper()
	return shared.Get(t, func(t testing.TB) *pgtest.Server { return pgtest.Start(t) }).Database(t)
}

func TestMain(m *testing.M) { os.Exit(livetest.Main(m, job.do, shared.End)) }

// A job is what a child process does with its own driver.
type job struct {
	Req     driver.Request
	URL     string
	Session bool
}

func (j job) do(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, j.URL)
	if err != nil {
		return err
	}
	defer pool.Close()
	d, err := openKind(pool, j.Session)
	if err != nil {
		return err
	}
	defer d.Close()
	return livetest.Hold(ctx, d, j.Req)
}

// openKind returns a driver of rows, or of sessions.
func openKind(pool *pgxpool.Pool, session bool) (driver.Driver, error) {
	if session {
		return pglock.NewSession(pool)
	}
	return pglock.New(pool)
}

// hold starts a child process that holds a lock, or waits for it.
func hold(t testing.TB, url string, session bool, req driver.Request) *livetest.Child {
	t.Helper()
	return livetest.StartChild(t, job{Req: req, URL: url, Session: session})
}
