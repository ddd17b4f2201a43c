package pglock_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/pglock"
)

// TestRoles grants the rights that docs/backends/pglock.md describes, and uses locks with them.
func TestRoles(t *testing.T) {
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
	l, told := jobtest.AcquireTold(t, app, request("a", "a"))
	named := newDriver(t, as(t, server, "app"), pglock.Table("snib.snib_locks"))
	w := jobtest.Waiting(t, named, request("a", "b"))
	if st, err := viewer.Status(t.Context(), "a"); err != nil || len(st.Holders) != 1 || len(st.Waiters) != 1 {
		t.Errorf("Status for a role that may look = %+v, %v; want a holder and a waiter", st, err)
	}
	for what, err := range map[string]error{
		"Break":   viewer.Break(t.Context(), "a", "a", l.Grant().Token),
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
	if err := named.Break(t.Context(), "a", "a", l.Grant().Token); err != nil {
		t.Errorf("Break = %v", err)
	}
	jobtest.AwaitLoss(t, told, livetest.Patience)
	release(t, w.Get(t))
}

// TestReadOnly makes the server refuse writes, like one that was demoted: holders and callers of
// Acquire get errors.
func TestReadOnly(t *testing.T) {
	server := pgtest.Start(t)
	pool := dial(t, server.URL())
	d := newDriver(t, dial(t, server.URL()))
	l := acquire(t, d, request("read only", "a"))
	w := jobtest.Waiting(t, newDriver(t, dial(t, server.URL())), request("read only", "b"))
	must(t, pool, "ALTER SYSTEM SET default_transaction_read_only = on")
	must(t, pool, "SELECT pg_reload_conf()")
	livetest.Await(t, "refusal", func() error {
		err := d.Renew(t.Context(), []driver.Lease{l})[0].Err
		switch {
		case err == nil:
			return errors.New("it still renews")
		case !errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrLost):
			t.Fatalf("Renew on a server that is read only = %v, want ErrInvalid", err)
		}
		return nil
	})
	if _, err := d.Acquire(t.Context(), noWait("other", "c")); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "standby") {
		t.Errorf("Acquire on a server that is read only = %v, want ErrInvalid and why", err)
	}
	w.Cancel()
	if err := w.End(t); err == nil {
		t.Error("a waiter got the lock")
	}
}
