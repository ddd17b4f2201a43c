package pglock_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/pglock"
)

// TestRoles grants the rights that docs/backends/pglock.md describes, and uses locks with them.
func TestRoles(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	// The statements must run in one session.
	pool := dialWith(t, server.URL(), func(c *pgxpool.Config) { c.MaxConns = 1 })
	must(t, pool, "CREATE ROLE app LOGIN; CREATE ROLE viewer LOGIN; CREATE ROLE guest LOGIN")
	page, err := os.ReadFile("../docs/backends/pglock.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```sql\n")
	block, _, _ = strings.Cut(block, "```")
	schema, err := pglock.Schema("")
	if err != nil {
		t.Fatal(err)
	}
	const here = "-- here: the output of snib schema postgres\n"
	if !strings.Contains(block, here) {
		t.Fatalf("the page has no place for the schema:\n%s", block)
	}
	must(t, pool, strings.Replace(block, here, schema, 1))

	app, viewer := newDriver(t, as(t, server, "app")), newDriver(t, as(t, server, "viewer"))
	l, told := livetest.AcquireTold(t, app, request("a", "a"))
	named := newDriver(t, as(t, server, "app"), pglock.Table("snib.snib_locks"))
	w := livetest.Waiting(t, named, request("a", "b"))
	if st, err := viewer.Status(t.Context(), "a"); err != nil || len(st.Holders) != 1 || len(st.Waiters) != 1 {
		t.Errorf("Status for a role that may look = %+v, %v; want a holder and a waiter", st, err)
	}
	for what, err := range map[string]error{
		"Break":   viewer.Break(t.Context(), "a", l.ID()),
		"Acquire": func() error { _, err := viewer.Acquire(t.Context(), noWait("b", "c")); return err }(),
	} {
		if err == nil || errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "GRANT") {
			t.Errorf("%s for a role that may only look = %v, want the right that is missing", what, err)
		}
	}
	guest := newDriver(t, as(t, server, "guest"), pglock.Table("snib.snib_locks"))
	if _, err := guest.Acquire(t.Context(), noWait("b", "c")); err == nil || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Acquire for a role that may do nothing = %v, want the right that is missing", err)
	}
	if err := named.Break(t.Context(), "a", l.ID()); err != nil {
		t.Errorf("Break = %v", err)
	}
	livetest.AwaitLoss(t, told, livetest.Patience)
	release(t, w.Get(t))
}

// TestOldWriter has pools with connections that refuse writes, as those to a primary that was
// demoted and lives on. New connections lead to a server that takes writes.
func TestOldWriter(t *testing.T) {
	t.Parallel()
	const conns = 4
	server := pgtest.Start(t)
	admin := dial(t, server.URL())
	release(t, acquire(t, newDriver(t, admin), request("first", "a"))) // the table exists
	must(t, admin, "ALTER ROLE postgres SET default_transaction_read_only = on")
	held, renewing, labelling := openOld(t, server, conns), openOld(t, server, conns), openOld(t, server, conns)
	must(t, admin, "ALTER ROLE postgres RESET default_transaction_read_only")

	for i := range conns {
		release(t, acquire(t, held, noWait(fmt.Sprint("new ", i), "a")))
	}
	l := acquire(t, newDriver(t, admin), request("held", "a"))
	if got := renewing.Renew(t.Context(), []driver.Lease{l})[0]; got.Err != nil {
		t.Errorf("Renew with connections to the old writer = %v", got.Err)
	}
	if err := labelling.Break(t.Context(), "held", l.ID()); err != nil {
		t.Errorf("Break with connections to the old writer = %v", err)
	}
}

// openOld returns a driver with n connections.
func openOld(t *testing.T, server *pgtest.Server, n int) *pglock.Driver {
	d := newDriver(t, dialWith(t, server.URL(), func(c *pgxpool.Config) { c.MaxConns = int32(n) }))
	openConns(t, d.Pool(), n)
	return d
}

// TestStandby sends requests to a standby.
func TestStandby(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t, "wal_level=replica")
	release(t, acquire(t, newDriver(t, dial(t, primary.URL())), request("first", "a")))
	standby := pgtest.Standby(t, primary.Addr())
	onStandby := dial(t, standby.URL())
	for i, d := range []driver.Driver{newDriver(t, onStandby), newDriver(t, onStandby, pglock.Table("not_created_yet")), newSession(t, onStandby)} {
		if _, err := d.Acquire(t.Context(), noWait("a", "b")); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "standby") {
			t.Errorf("Acquire on a standby, by driver %d, = %v, want ErrUnavailable and why", i, err)
		}
	}
	tx := begin(t, onStandby, "")
	if err := pglock.Tx(t.Context(), tx, "a", 0); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Tx on a standby = %v, want ErrUnavailable", err)
	}
	// The pool of a holder leads to the standby, which does not know the lease yet, when the driver is
	// told to verify the lease.
	must(t, onStandby, "SELECT pg_wal_replay_pause()")
	proxy := livetest.NewProxy(t, primary.Addr())
	direct := dial(t, primary.URL())
	d := newDriver(t, dial(t, pgtest.URL(proxy.Addr())), pglock.Listen(direct.Config().ConnConfig))
	req, told := request("held", "a"), make(chan error, 1)
	req.OnLost = func(err error) { told <- err }
	l := acquire(t, d, req)
	awaitListener(t, direct)
	proxy.Redirect(standby.Addr())
	proxy.Cut()
	flood(t, direct, "snib_locks", "b", "holders", 1)
	livetest.Await(t, "verification on the standby", func() error {
		if query[bool](t, onStandby, `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE query LIKE '%l.holders%' AND state = 'idle' AND pid <> pg_backend_pid())`) {
			return nil
		}
		return errors.New("there was none")
	})
	proxy.Redirect(primary.Addr())
	proxy.Cut()
	release(t, l)
	if len(told) > 0 {
		t.Errorf("a holder was told %v, because a standby does not know its lease yet", <-told)
	}
}
