package mysqllock_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/mysqllock"
)

// TestRenewalOfReadOnly has the server set read_only only while it executes a renewal, as if the
// next statement reached another server. The row has the lease, but that statement has not extended
// it, so the answer must not promise more than the row has.
func TestRenewalOfReadOnly(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	admin := dial(t, server.DSN())
	d := hooked(t, server.DSN(), func(statement string, exec execFunc) (sqldriver.Result, error) {
		if strings.Contains(statement, "ttl = GREATEST") {
			must(t, admin, "SET GLOBAL read_only = 1")
			defer must(t, admin, "SET GLOBAL read_only = 0")
		}
		return exec()
	})
	l := acquire(t, d, request("job", "a"))
	time.Sleep(time.Second) // so much less is left of the lease
	r := d.Renew(testContext(t), []driver.Lease{l})[0]
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	st, err := d.Status(testContext(t), "job")
	if err != nil || len(st.Holders) != 1 {
		t.Fatal(st, err)
	}
	if promised := request("", "").TTL - driver.Now().Sub(r.Start); promised > st.Holders[0].Left+100*time.Millisecond {
		t.Errorf("Renew promised another %v, and the row has %v", promised, st.Holders[0].Left)
	}
}

// TestRenewalSentTwice has a proxy send a renewal again. In between, one client has read the row,
// and another has written it. If the row got its version back, the first would write over that.
func TestRenewalSentTwice(t *testing.T) {
	t.Parallel()
	server := database(t)
	admin := dial(t, server.DSN())
	const version = "SELECT version FROM snib_locks WHERE name = 'job'"
	var read int64
	d := hooked(t, server.DSN(), func(statement string, exec execFunc) (sqldriver.Result, error) {
		if _, err := exec(); err == nil && strings.Contains(statement, "ttl = GREATEST") {
			read = number(t, admin, version)
			must(t, admin, "UPDATE snib_locks SET version = version - 1 WHERE name = 'job'")
		}
		return exec()
	})
	l := acquire(t, newDriver(t, server.DSN()), request("job", "a"))
	err := d.Renew(testContext(t), []driver.Lease{l})[0].Err
	if got := number(t, admin, version); err != nil || got == read {
		t.Errorf("Renew = %v, and the version is %d, as before", err, got)
	}
}

// TestReplicaIsNotWritten has a server set read_only that has become a replica. Its user may write
// all the same, and what the driver wrote would keep it from replicating any more.
func TestReplicaIsNotWritten(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t, "log-bin")
	db, dsn := dial(t, server.DSN()), server.DSN("sql_log_bin=0") // which would keep all locks from replicas
	written := func() (at string) {
		if err := db.QueryRowContext(testContext(t), "SELECT @@gtid_binlog_pos").Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	d, waits, empty := newDriver(t, dsn), newDriver(t, dsn), written()
	l := acquire(t, d, request("held", "a"))
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	req, polled, ended := request("held", "b"), make(chan error, 100), make(chan error)
	req.OnWait = func(err error) { polled <- err }
	go func() {
		_, err := waits.Acquire(ctx, req)
		ended <- err
	}()
	<-polled
	must(t, db, "SET GLOBAL read_only = 1")
	before := written()
	if before == empty {
		t.Errorf("the log still ends at %q after a grant", before)
	}
	for began := time.Now(); time.Since(began) < 3*time.Second; { // heartbeats are due in each second
		<-polled
	}
	absent := newDriver(t, dsn, mysqllock.Table("absent"))
	for what, err := range map[string]error{
		"Renew":   d.Renew(testContext(t), []driver.Lease{l})[0].Err,
		"Release": l.Release(testContext(t)),
		"Break":   d.Break(testContext(t), "held", l.ID()),
		"Acquire": func() error { _, err := tryAcquire(t, absent, request("new", "a")); return err }(),
	} {
		if !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s = %v, want ErrUnavailable", what, err)
		}
	}
	if err := d.Prune(testContext(t), time.Hour); err != nil {
		t.Errorf("Prune = %v", err)
	}
	cancel()
	<-ended
	waits.Close()
	d.Close()
	if after := written(); after != before {
		t.Errorf("the server has written up to %s, and now to %s", before, after)
	}
}

// TestHiddenID has a proxy between the pool and the server that hides LAST_INSERT_ID.
func TestHiddenID(t *testing.T) {
	t.Parallel()
	server := database(t)
	other := newDriver(t, server.DSN())
	d := hooked(t, server.DSN(), func(_ string, exec execFunc) (sqldriver.Result, error) {
		res, err := exec()
		return hiddenID{res}, err
	})
	if _, err := tryAcquire(t, d, request("hidden", "a")); err == nil || !strings.Contains(err.Error(), "LAST_INSERT_ID") {
		t.Errorf("Acquire where LAST_INSERT_ID is hidden = %v, want an error that says so", err)
	}
	if st, err := other.Status(testContext(t), "hidden"); err != nil || len(st.Holders) != 0 {
		t.Errorf("Status after that error = %+v, %v; want no holder", st, err)
	}
}

// A hiddenID is a result without the value of LAST_INSERT_ID.
type hiddenID struct{ sqldriver.Result }

func (hiddenID) LastInsertId() (int64, error) { return 0, nil }

type (
	execFunc = func() (sqldriver.Result, error)
	hookFunc = func(statement string, exec execFunc) (sqldriver.Result, error)
)

// hooked returns a driver whose pool calls hook for each statement that writes.
func hooked(t *testing.T, dsn string, hook hookFunc) *mysqllock.Driver {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	return closeAtEnd(t, mysqllock.NewOn(sql.OpenDB(&hookedConnector{connector, hook})))
}

type hookedConnector struct {
	sqldriver.Connector

	hook hookFunc
}

func (c *hookedConnector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return &hookedConn{conn, c}, err
}

type hookedConn struct {
	sqldriver.Conn

	c *hookedConnector
}

func (c *hookedConn) QueryContext(ctx context.Context, query string,
	args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	return c.Conn.(sqldriver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *hookedConn) ExecContext(ctx context.Context, query string,
	args []sqldriver.NamedValue) (sqldriver.Result, error) {
	return c.c.hook(query, func() (sqldriver.Result, error) {
		return c.Conn.(sqldriver.ExecerContext).ExecContext(ctx, query, args)
	})
}
