package mysqllock_test

import (
	"context"
	"crypto/rand"
	"os"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/mysqllock"
)

// shared is the server of tests that only need a database.
var shared livetest.Shared[*mysqltest.Server]

func database(t testing.TB) *mysqltest.Server {
	t.Helper()
	server := shared.Get(t, func(t testing.TB) *mysqltest.Server { return mysqltest.Start(t) })
	name := "of_" + rand.Text()
	must(t, dial(t, server.DSN()), "CREATE DATABASE "+name)
	return server.In(name)
}

func TestMain(m *testing.M) { os.Exit(livetest.Main(m, job.do, shared.End)) }

// A job is what a child process does with its own driver.
type job struct {
	Req driver.Request
	DSN string
}

func (j job) do(ctx context.Context) error {
	conf, err := mysql.ParseDSN(j.DSN)
	if err != nil {
		return err
	}
	d, err := mysqllock.New(conf)
	if err != nil {
		return err
	}
	defer d.Close()
	return livetest.Hold(ctx, d, j.Req)
}

// hold starts a child process that holds a lock, or waits for it.
func hold(t testing.TB, dsn string, req driver.Request) *livetest.Child {
	t.Helper()
	return livetest.StartChild(t, job{Req: req, DSN: dsn})
}
