package mysqllock_test

import (
	"context"
	"database/sql"
	"os"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/mysqllock"
)

func TestMain(m *testing.M) { os.Exit(livetest.Main(m, job.do)) }

// A job is what a child process does with its own driver.
type job struct {
	jobtest.Job
	DSN  string
	Kind string // of the contender, for "exchange"
}

func (j job) do(ctx context.Context) error {
	if j.Role == "exchange" {
		return jobtest.Answer(ctx, opener(j.Kind, j.DSN))
	}
	db, err := sql.Open("mysql", j.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	d, err := mysqllock.New(db)
	if err != nil {
		return err
	}
	defer d.Close()
	return j.Do(ctx, d)
}

// hold starts a child process that holds a lock, or waits for it.
func hold(t testing.TB, dsn string, req driver.Request) *livetest.Child {
	t.Helper()
	return livetest.StartChild(t, job{Job: jobtest.Job{Role: "hold", Req: req}, DSN: dsn})
}
