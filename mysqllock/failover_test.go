package mysqllock_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/mysqllock"
)

// TestReplacedPrimary replaces the primary, which goes on serving the connections of the pool as a
// server that is read only. Requests reach the new primary all the same, and a hold that it does
// not know is lost.
func TestReplacedPrimary(t *testing.T) {
	t.Parallel()
	for user, account := range map[string]string{
		"Plain": "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON snib.* TO app@'%'",
		"Super": "GRANT ALL ON *.* TO app@'%'", // it may write although the server is read only
	} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			first, second := mysqltest.Start(t), mysqltest.Start(t)
			for _, server := range []*mysqltest.Server{first, second} {
				admin := dial(t, server.DSN())
				must(t, admin, "CREATE USER app@'%' IDENTIFIED BY 'x'")
				must(t, admin, account)
			}
			proxy := livetest.NewProxy(t, first.Addr())
			d := newDriver(t, "app:x@tcp("+proxy.Addr()+")/snib")
			held, released := acquire(t, d, request("held", "a")), acquire(t, d, request("released", "a"))
			waiter := livetest.Waiting(t, d, request("held", "c"))
			fillPool(t, mysqllock.Pool(d), 4)

			must(t, dial(t, first.DSN()), "SET GLOBAL read_only = 1")
			proxy.Redirect(second.Addr())
			other := newDriver(t, second.DSN())
			taken := acquire(t, other, request("taken", "b"))
			if err := released.Release(testContext(t)); !errors.Is(err, driver.ErrLost) {
				t.Errorf("Release = %v, want ErrLost: the new primary does not know the hold", err)
			}
			livetest.Await(t, "answer of the new primary", func() error {
				_, err := tryAcquire(t, d, request("taken", "a"))
				if errors.Is(err, driver.ErrHeld) {
					return nil
				}
				if !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("Acquire = %v, want ErrUnavailable or ErrHeld", err)
				}
				return fmt.Errorf("Acquire = %w", err)
			})
			livetest.Await(t, "loss of the hold", func() error {
				err := d.Renew(testContext(t), []driver.Lease{held})[0].Err
				if errors.Is(err, driver.ErrLost) {
					return nil
				}
				return fmt.Errorf("Renew = %w", err)
			})
			release(t, taken)
			release(t, acquire(t, d, request("taken", "a")))
			release(t, waiter.Get(t))
		})
	}
}

// TestStatementFormat has a server send its statements to replicas, where they find read_only set,
// and change nothing. Such a replica would be promoted without a lock.
func TestStatementFormat(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t, "log-bin=log", "binlog-format=STATEMENT")
	if _, err := tryAcquire(t, newDriver(t, server.DSN()), request("a", "a")); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Acquire = %v, want ErrInvalid", err)
	}
	release(t, acquire(t, newDriver(t, server.DSN("binlog_format=MIXED")), request("a", "a")))
}

// fillPool opens connections that then are idle.
func fillPool(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	var conns []*sql.Conn
	for range n {
		conn, err := db.Conn(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
}
