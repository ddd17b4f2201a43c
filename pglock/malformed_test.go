package pglock_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/pglock"
)

var malformations = []jobtest.MalformedRow{
	{Name: "HoldersObject", Change: `holders = '{}'`, RenewFails: true, ListFails: true, WaitFails: true},
	{Name: "HoldersNumber", Change: `holders = '5'`, RenewFails: true, ListFails: true, WaitFails: true},
	{Name: "WaitersObject", Change: `waiters = '{"a": 1}'`, ListFails: true, WaitFails: true},
	{Name: "UntilText", Change: `holders = jsonb_set(holders, '{0,until}', '"soon"')`, RenewFails: true, ListFails: true, WaitFails: true},
	{Name: "UntilLong", Change: `holders = jsonb_set(holders, '{0,until}', to_jsonb(repeat('9', 100000)))`, RenewFails: true, ListFails: true, WaitFails: true},
	{Name: "UntilFraction", Change: `holders = jsonb_set(holders, '{0,until}', '1.5')`, RenewFails: true, ListFails: true, WaitFails: true},
	{Name: "WaiterUntilText", Change: `waiters = waiters || '[{"nonce": "x-1", "until": "soon"}]'`, ListFails: true, WaitFails: true},
	{Name: "SharedText", Change: `holders = jsonb_set(holders, '{0,shared}', '"perhaps"')`, ListFails: true, WaitFails: true},
	{Name: "OwnerNumber", Change: `holders = jsonb_set(holders, '{0,owner}', '7')`, ListFails: true, WaitFails: true},
	{Name: "TTLHuge", Change: `holders = jsonb_set(holders, '{0,ttl}', '9223372036854775807')`, WaitFails: true},
	{Name: "NoToken", Change: `holders = holders #- '{0,token}'`, RenewFails: true},
}

// TestMalformedRow writes malformed rows into a table. Requests about these locks fail and
// say why. All other locks are renewed, granted in the order of arrival, listed and pruned.
func TestMalformedRow(t *testing.T) {
	server := pgtest.Start(t)
	session := append(slices.Clone(malformations),
		jobtest.MalformedRow{Name: "SessionText", Change: `holders = jsonb_set(holders, '{0,session}', '"none"')`, RenewFails: true, ListFails: true, WaitFails: true})
	tests := []struct {
		name string
		open func(testing.TB, *pgxpool.Pool, ...pglock.Option) *pglock.Driver
		rows []jobtest.MalformedRow
	}{
		{"Rows", newDriver, malformations},
		{"Session", newSession, session},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			table := "malformed_" + strings.ToLower(tt.name)
			testMalformedRow(t, dial(t, server.URL()), table, tt.rows, func() *pglock.Driver {
				return tt.open(t, dial(t, server.URL()), pglock.Table(table))
			})
		})
	}
}

func testMalformedRow(t *testing.T, pool *pgxpool.Pool, table string, rows []jobtest.MalformedRow, open func() *pglock.Driver) {
	holder, first, second := open(), open(), open()
	good := []string{"a", "m", "z"}
	names := slices.Clone(good)
	for _, m := range rows {
		names = append(names, m.Name)
	}
	held, told, waiting := map[string]driver.Lease{}, map[string]chan error{}, map[string]*jobtest.Waiter{}
	for _, name := range names {
		told[name] = make(chan error, 1)
		req := request(name, "holder")
		req.OnLost = func(why error) { told[name] <- why }
		held[name] = acquire(t, holder, req)
		waiting[name] = jobtest.Waiting(t, first, request(name, "first"))
	}
	for _, m := range rows {
		must(t, pool, fmt.Sprintf(`UPDATE %s SET %s WHERE name = $1`, table, m.Change), m.Name)
	}
	behind := map[string]*jobtest.Waiter{}
	for _, name := range good {
		behind[name] = jobtest.Waiting(t, second, request(name, "second"))
	}
	time.Sleep(4 * time.Second) // a waiter without heartbeats has lost its place by then

	for _, m := range rows {
		if m.WaitFails {
			jobtest.MustNameRow(t, "the wait", waiting[m.Name].End(t), m.Name, table)
			_, err := second.Acquire(t.Context(), noWait(m.Name, "another"))
			jobtest.MustNameRow(t, "Acquire", err, m.Name, table)
		}
		if m.ListFails {
			_, err := second.Status(t.Context(), m.Name)
			jobtest.MustNameRow(t, "Status", err, m.Name, table)
		}
	}
	mustRenewOthers(t, holder, held, rows, table)
	jobtest.MustListOthers(t, second, names, rows, table)

	// A false notification makes the holder look at a row that can't be read.
	must(t, pool, `SELECT pg_notify(e->>'channel', 'b' || (e->>'nonce')) FROM `+table+`
		CROSS JOIN LATERAL jsonb_array_elements(holders) e WHERE name = 'UntilText'`)
	if err := second.Break(t.Context(), "m", "holder", held["m"].Grant().Token); err != nil {
		t.Fatalf("Break = %v", err)
	}
	select {
	case <-told["m"]:
	case <-time.After(soonEnough):
		t.Errorf("the holder was not told within %v that its lease was broken", soonEnough)
	}
	select {
	case why := <-told["UntilText"]:
		t.Errorf("the holder of a lock whose row can't be read was told %v", why)
	default:
	}
	for _, name := range good {
		if name != "m" {
			release(t, held[name])
		}
		waiting[name].Get(t)
		behind[name].Running(t, "before the first waiter released")
	}
	mustPruneOthers(t, second, pool, table)
}

// mustRenewOthers renews all leases in one call. Only those whose rows can't be read may fail.
func mustRenewOthers(t *testing.T, d *pglock.Driver, held map[string]driver.Lease, rows []jobtest.MalformedRow, table string) {
	t.Helper()
	var names []string
	var due []driver.Lease
	for name, l := range held {
		names, due = append(names, name), append(due, l)
	}
	for i, answer := range d.Renew(t.Context(), due) {
		switch fails := func(m jobtest.MalformedRow) bool { return m.Name == names[i] && m.RenewFails }; {
		case slices.ContainsFunc(rows, fails):
			jobtest.MustNameRow(t, "Renew", answer.Err, names[i], table)
		case answer.Err != nil:
			t.Errorf("Renew of %q = %.1000v, want nil", names[i], answer.Err)
		}
	}
}

// mustPruneOthers prunes a row beside rows that can't be read.
func mustPruneOthers(t *testing.T, d *pglock.Driver, pool *pgxpool.Pool, table string) {
	t.Helper()
	release(t, acquire(t, d, request("old", "a")))
	must(t, pool, "UPDATE "+table+" SET used = used - 7200000000 WHERE name <> ''")
	before := query[int](t, pool, "SELECT count(*) FROM "+table)
	for range 2 { // first the token is noted, then the row is deleted
		if err := d.Prune(t.Context(), 0); err != nil {
			t.Fatalf("Prune = %.1000v", err)
		}
	}
	if got := query[int](t, pool, "SELECT count(*) FROM "+table); got != before-1 {
		t.Errorf("Prune deleted %d rows, want the one that nobody has used", before-got)
	}
}
