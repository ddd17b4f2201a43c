package mysqllock_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

// TestRenewalOfReadOnly has the server set read_only only while it executes a renewal, as if the
// next statement reached another server. The row has the lease, but the renewal has not extended
// it, so the answer must not promise a whole TTL.
func TestRenewalOfReadOnly(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	admin := dial(t, server.DSN())
	config, err := mysql.ParseDSN(server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(&hookedConnector{connector, func(statement string, exec func()) {
		if strings.Contains(statement, "ttl = GREATEST") {
			must(t, admin, "SET GLOBAL read_only = 1")
			defer must(t, admin, "SET GLOBAL read_only = 0")
		}
		exec()
	}})
	t.Cleanup(func() { db.Close() })
	d := newDriver(t, db)
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

// A hookedConnector calls hook for each statement that writes.
type hookedConnector struct {
	sqldriver.Connector

	hook func(statement string, exec func())
}

func (c *hookedConnector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return &hookedConn{conn, c.hook}, err
}

type hookedConn struct {
	sqldriver.Conn

	hook func(statement string, exec func())
}

func (c *hookedConn) QueryContext(ctx context.Context, query string,
	args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	return c.Conn.(sqldriver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *hookedConn) ExecContext(ctx context.Context, query string,
	args []sqldriver.NamedValue) (res sqldriver.Result, err error) {
	c.hook(query, func() { res, err = c.Conn.(sqldriver.ExecerContext).ExecContext(ctx, query, args) })
	return res, err
}
