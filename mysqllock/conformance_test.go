package mysqllock_test

import (
	"database/sql"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver for sql.Open

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/drivertest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

// Each driver connects through its own proxy.
func TestConformance(t *testing.T) {
	server := mysqltest.Start(t)
	paths, empty := livetest.Paths{}, make(map[string]func(*testing.T))
	for _, statement := range []string{"DELETE FROM", "TRUNCATE TABLE", "DROP TABLE"} {
		empty[statement] = func(t *testing.T) { must(t, dial(t, server.DSN()), statement+" snib_locks") }
	}
	drivertest.Run(t, drivertest.Harness{
		Open: func(t *testing.T) driver.Driver {
			proxy := livetest.NewProxy(t, server.Addr())
			d := newDriver(t, mysqltest.DSN(proxy.Addr()))
			paths[d] = []*livetest.Proxy{proxy}
			return d
		},
		TTL:    200 * time.Millisecond,
		Secret: mysqltest.Password(),
		Sever:  paths.Sever,
		Stall:  paths.Stall,
		Kill: func(t *testing.T, req driver.Request) func() {
			p := hold(t, server.DSN(), req)
			p.Expect("held")
			return p.Kill
		},
		Restart: func(*testing.T) {
			server.Kill()
			server.Restart()
		},
		Empty: empty,
	})
}

// dial returns a pool of connections that is closed at the end of the test.
func dial(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
