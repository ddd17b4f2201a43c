package mysqllock_test

import (
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/outagetest"
)

// TestFailures proves the cells of MariaDB in docs/failures.md.
func TestFailures(t *testing.T) {
	t.Parallel()
	shim := livetest.NewShim(t, "mysql")
	server := mysqltest.Start(livetest.WithEnv(t, shim.Env()...), "max-connections=60")
	admin := dial(t, server.DSN())
	admin.SetMaxOpenConns(1)
	admin.SetMaxIdleConns(1)
	const secret = "a-secret-of-the-program"
	must(t, admin, "CREATE USER program@'%' IDENTIFIED BY '"+secret+"'")
	must(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON snib.* TO program@'%'")
	dsn := "program:" + secret + "@tcp(" + server.Addr() + ")/" + mysqltest.Database
	setPassword := func(password string) {
		must(t, admin, "ALTER USER program@'%' IDENTIFIED BY '"+password+"'")
		must(t, admin, "KILL USER program")
	}
	store := outagetest.Store{Secret: secret, Open: func(t *testing.T) driver.Driver { return newDriver(t, dsn) }}
	store.Failures(t,
		outagetest.Failure{Name: "Password", Denied: true, Says: "Access denied", Begin: func(*testing.T) func() {
			setPassword("another")
			return func() { setPassword(secret) }
		}},
		outagetest.Hung("no answer", server),
		outagetest.Restarted(server),
		outagetest.Failure{Name: "FullPool", Renews: true, Next: driver.ErrFull,
			Begin: func(*testing.T) func() {
				must(t, admin, "SELECT 1") // connects anew, while that is possible
				filler := dial(t, dsn)
				for err := error(nil); err == nil; {
					_, err = filler.Conn(t.Context()) // it stays open
				}
				return func() { must(t, admin, "SET GLOBAL max_connections = 80") }
			}},
		outagetest.Failure{Name: "ReadOnly", Begin: func(*testing.T) func() {
			must(t, admin, "SET GLOBAL read_only = 1")
			return func() { must(t, admin, "SET GLOBAL read_only = 0") }
		}},
		outagetest.Failure{Name: "FullDisk", Begin: func(*testing.T) func() {
			server.MayEnd() // it aborts when it can't write its log
			shim.FillDisk(true)
			return func() {
				shim.FillDisk(false)
				server.Kill() // it may be about to end
				server.Restart()
			}
		}},
	)
}
