package mysqllock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/mysqllock"
)

// TestBusyPool has the program use all connections of its pool that the driver leaves to it. No
// lock may be lost for that, also after the connection that the driver keeps was cut once.
func TestBusyPool(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	proxy := livetest.NewProxy(t, server.Addr())
	db := dial(t, mysqltest.DSN(proxy.Addr()))
	db.SetMaxOpenConns(3)
	d := newDriver(t, db)
	l := acquire(t, d, request("busy", "a"))
	for range 2 {
		conn, err := db.Conn(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	for range 3 {
		if err := d.Renew(testContext(t), []driver.Lease{l})[0].Err; err != nil {
			t.Errorf("Renew = %v", err)
		}
	}
	// The answer comes before our own deadline, which may be late on a busy machine.
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	req := request("other", "a")
	req.NoWait = true
	if _, err := d.Acquire(ctx, req); !errors.Is(err, driver.ErrFull) || !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "pool") {
		t.Errorf("Acquire beside a busy pool = %v, want ErrFull that names the pool", err)
	}
	release(t, l)
}

// TestSpareIsReplaced cuts the connection that the driver keeps.
func TestSpareIsReplaced(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	proxy := livetest.NewProxy(t, server.Addr())
	db := dial(t, mysqltest.DSN(proxy.Addr()))
	db.SetMaxOpenConns(3)
	d := newDriver(t, db)
	l := acquire(t, d, request("cut", "a"))
	proxy.Cut()
	if err := d.Renew(testContext(t), []driver.Lease{l})[0].Err; err != nil {
		t.Errorf("Renew after a cut = %v", err)
	}
	for range 2 {
		conn, err := db.Conn(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	release(t, l)
	if err := d.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	if n := db.Stats().InUse; n != 2 {
		t.Errorf("%d connections are in use after Close, want the 2 of the program", n)
	}
}

func TestPoolOfOneIsRefused(t *testing.T) {
	db := dial(t, mysqltest.DSN("127.0.0.1:1"))
	db.SetMaxOpenConns(1)
	if _, err := mysqllock.New(db); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "SetMaxOpenConns") {
		t.Errorf("New = %v, want ErrInvalid that names the setting", err)
	}
}

// TestMisconfigured checks that what only another configuration can mend is an error at once.
func TestMisconfigured(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	for name, dsn := range map[string]string{
		"Database": strings.Replace(server.DSN(), "/"+mysqltest.Database, "/nowhere", 1),
		"Variable": server.DSN("no_such_variable=1"),
		"Value":    server.DSN("sql_mode=%27nonsense%27"),
		"TimeZone": server.DSN("time_zone=%27nowhere%27"),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := newDriver(t, dial(t, dsn)).Acquire(testContext(t), request("a", "a")); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("Acquire = %v, want ErrInvalid", err)
			}
		})
	}
}

// TestIsOwnerOnGalera checks that IsOwner writes the lock's row on a server that replicates with
// Galera, and only there: two nodes exclude nothing but writes of the same row.
func TestIsOwnerOnGalera(t *testing.T) {
	t.Parallel()
	for setting, writes := range map[string]int64{"wsrep-on=1": 1, "wsrep-on=0": 0} {
		t.Run(setting, func(t *testing.T) {
			server := mysqltest.Start(t, setting, "binlog-format=ROW")
			db := dial(t, server.DSN())
			d := newDriver(t, db)
			l := acquire(t, d, request("a", "a"))
			const used = "SELECT used FROM snib_locks WHERE name = 'a'"
			before := number(t, db, used)
			tx, err := db.BeginTx(testContext(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := d.IsOwner(testContext(t), tx, "a", l.Grant().Token); err != nil {
				t.Errorf("IsOwner = %v", err)
			}
			if err := tx.Commit(); err != nil {
				t.Errorf("Commit = %v", err)
			}
			if after := number(t, db, used); (after > before) != (writes > 0) {
				t.Errorf("the row was used at %d, and then at %d; want %d writes", before, after, writes)
			}
			release(t, l)
		})
	}
}
