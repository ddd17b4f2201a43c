package pglock_test

import (
	"errors"
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

// A malformation is a change of a row by somebody who may write the table.
type malformation struct {
	name   string // of the lock
	change string

	// Whether a renewal, the list and a waiter report an error for the row.
	renewFails, listFails, waitFails bool
}

var malformations = []malformation{
	{"HoldersObject", `holders = '{}'`, true, true, true},
	{"HoldersNumber", `holders = '5'`, true, true, true},
	{"WaitersObject", `waiters = '{"a": 1}'`, false, true, true},
	{"UntilText", `holders = jsonb_set(holders, '{0,until}', '"soon"')`, true, true, true},
	{"UntilLong", `holders = jsonb_set(holders, '{0,until}', to_jsonb(repeat('9', 100000)))`, true, true, true},
	{"UntilFraction", `holders = jsonb_set(holders, '{0,until}', '1.5')`, true, true, true},
	{"WaiterUntilText", `waiters = waiters || '[{"nonce": "x-1", "until": "soon"}]'`, false, true, true},
	{"SharedText", `holders = jsonb_set(holders, '{0,shared}', '"perhaps"')`, false, true, true},
	{"OwnerNumber", `holders = jsonb_set(holders, '{0,owner}', '7')`, false, true, true},
	{"TTLHuge", `holders = jsonb_set(holders, '{0,ttl}', '9223372036854775807')`, false, false, true},
	{"NoToken", `holders = holders #- '{0,token}'`, true, false, false},
}

// TestMalformedRow writes malformed rows into a table. Requests about these locks fail and
// say why. All other locks are renewed, granted in the order of arrival, listed and pruned.
func TestMalformedRow(t *testing.T) {
	server := pgtest.Start(t)
	session := append(slices.Clone(malformations),
		malformation{"SessionText", `holders = jsonb_set(holders, '{0,session}', '"none"')`, true, true, true})
	tests := []struct {
		name string
		open func(testing.TB, *pgxpool.Pool, ...pglock.Option) *pglock.Driver
		rows []malformation
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

func testMalformedRow(t *testing.T, pool *pgxpool.Pool, table string, rows []malformation, open func() *pglock.Driver) {
	holder, first, second := open(), open(), open()
	good := []string{"a", "m", "z"}
	names := slices.Clone(good)
	for _, m := range rows {
		names = append(names, m.name)
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
		must(t, pool, fmt.Sprintf(`UPDATE %s SET %s WHERE name = $1`, table, m.change), m.name)
	}
	behind := map[string]*jobtest.Waiter{}
	for _, name := range good {
		behind[name] = jobtest.Waiting(t, second, request(name, "second"))
	}
	time.Sleep(4 * time.Second) // a waiter without heartbeats has lost its place by then

	for _, m := range rows {
		if m.waitFails {
			mustNameRow(t, "the wait", waiting[m.name].End(t), m.name, table)
			_, err := second.Acquire(t.Context(), noWait(m.name, "another"))
			mustNameRow(t, "Acquire", err, m.name, table)
		}
		if m.listFails {
			_, err := second.Status(t.Context(), m.name)
			mustNameRow(t, "Status", err, m.name, table)
		}
	}
	mustRenewOthers(t, holder, held, rows, table)
	mustListOthers(t, second, names, rows, table)

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

// mustNameRow checks that err says which row can't be read.
func mustNameRow(t *testing.T, what string, err error, name, table string) {
	t.Helper()
	if !errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%s of %q = %.1000v, want ErrInvalid", what, name, err)
		return
	}
	for _, text := range []string{fmt.Sprintf("%q", name), table} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s of %q = %.1000v, want an error that has %s", what, name, err, text)
		}
	}
	if n := len(err.Error()); n > 1000 {
		t.Errorf("the error of %s of %q has %d bytes, want at most 1000", what, name, n)
	}
}

// mustRenewOthers renews all leases in one call. Only those whose rows can't be read may fail.
func mustRenewOthers(t *testing.T, d *pglock.Driver, held map[string]driver.Lease, rows []malformation, table string) {
	t.Helper()
	var names []string
	var due []driver.Lease
	for name, l := range held {
		names, due = append(names, name), append(due, l)
	}
	for i, answer := range d.Renew(t.Context(), due) {
		switch fails := func(m malformation) bool { return m.name == names[i] && m.renewFails }; {
		case slices.ContainsFunc(rows, fails):
			mustNameRow(t, "Renew", answer.Err, names[i], table)
		case answer.Err != nil:
			t.Errorf("Renew of %q = %.1000v, want nil", names[i], answer.Err)
		}
	}
}

// mustListOthers lists all locks but those whose rows can't be read. The error names the first of
// these.
func mustListOthers(t *testing.T, d *pglock.Driver, names []string, rows []malformation, table string) {
	t.Helper()
	var want, got, missing []string
	for _, name := range slices.Sorted(slices.Values(names)) {
		if slices.ContainsFunc(rows, func(m malformation) bool { return m.name == name && m.listFails }) {
			missing = append(missing, name)
		} else {
			want = append(want, name)
		}
	}
	err := d.List(t.Context(), "", func(st driver.Status) bool {
		got = append(got, st.Name)
		return true
	})
	if !slices.Equal(got, want) {
		t.Errorf("List told of %q, want %q", got, want)
	}
	mustNameRow(t, "List", err, missing[0], table)
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
