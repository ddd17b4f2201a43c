package mysqllock_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/mysqllock"
)

var malformations = []jobtest.MalformedRow{
	{Name: "WaiterText", Change: "waiters = CONCAT(waiters, 'x-1 no object\n')", ListFails: true, WaitFails: true},
	{Name: "WaiterOwner", Change: `waiters = CONCAT(waiters, 'x-1 {"owner": 7}\n')`, ListFails: true, WaitFails: true},
	{Name: "WaiterLong", Change: "waiters = CONCAT(waiters, REPEAT('9', 100000), '\n')", ListFails: true, WaitFails: true},
	{Name: "HolderText", Change: "holder = 'nobody'", ListFails: true, WaitFails: true},
	{Name: "HolderGone", Change: "holder = ''", ListFails: true, WaitFails: true},
	{Name: "HoldersText", Change: "holders = 'nobody'", ListFails: true, WaitFails: true},
	{Name: "KeptNumber", Change: "kept = 2", RenewFails: true, ListFails: true, WaitFails: true},
	{Name: "VersionHuge", Change: "version = 9223372036854775807", RenewFails: true},
}

// TestMalformedRow writes malformed rows into a table. Requests about these locks fail and
// say why. All other locks are renewed, granted in the order of arrival, and listed.
func TestMalformedRow(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	session := []jobtest.MalformedRow{
		{Name: "SessionLong", Change: `holder = REPLACE(holder, '"session":"', CONCAT('"session":"', REPEAT('x', 300)))`, RenewFails: true, ListFails: true, WaitFails: true},
	}
	for _, m := range malformations {
		m.RenewFails = m.ListFails // a session reads
		session = append(session, m)
	}
	readers := append(slices.Clone(malformations[:2]),
		jobtest.MalformedRow{Name: "HoldersText", Change: "holders = 'nobody'", RenewFails: true, ListFails: true, WaitFails: true})
	for i := range 2 {
		readers[i].RenewFails = true // a renewal of readers reads
	}
	tests := []struct {
		name   string
		open   func(testing.TB, *sql.DB, ...mysqllock.Option) *mysqllock.Driver
		opts   []mysqllock.Option
		shared bool
		rows   []jobtest.MalformedRow
	}{
		{"Rows", newDriver, nil, false, malformations},
		{"Readers", newDriver, nil, true, readers},
		// The session looks at its rows after each third of the timeout.
		{"Session", newSession, []mysqllock.Option{mysqllock.Timeout(3 * time.Second)}, false, session},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			table := "malformed_" + strings.ToLower(tt.name)
			testMalformedRow(t, dial(t, server.DSN()), table, tt.shared, tt.rows, func() *mysqllock.Driver {
				return tt.open(t, dial(t, server.DSN()), append(tt.opts, mysqllock.Table(table))...)
			})
		})
	}
}

func testMalformedRow(t *testing.T, db *sql.DB, table string, shared bool, rows []jobtest.MalformedRow, open func() *mysqllock.Driver) {
	holder, first, second := open(), open(), open()
	good := []string{"a", "m", "z"}
	names := slices.Clone(good)
	for _, m := range rows {
		names = append(names, m.Name)
	}
	held, waiting := map[string]driver.Lease{}, map[string]*jobtest.Waiter{}
	for _, name := range names {
		req := request(name, "holder")
		req.Shared = shared
		held[name] = acquire(t, holder, req)
		waiting[name] = jobtest.Waiting(t, first, request(name, "first"))
	}
	for _, m := range rows {
		must(t, db, fmt.Sprintf("UPDATE %s SET %s WHERE name = ?", table, m.Change), []byte(m.Name))
	}
	behind := map[string]*jobtest.Waiter{}
	for _, name := range good {
		behind[name] = jobtest.Waiting(t, second, request(name, "second"))
	}
	time.Sleep(4 * time.Second) // longer than a waiter counts without a heartbeat

	for _, m := range rows {
		if m.WaitFails {
			jobtest.MustNameRow(t, "the wait", waiting[m.Name].End(t), m.Name, table)
			_, err := tryAcquire(t, second, request(m.Name, "another"))
			jobtest.MustNameRow(t, "Acquire", err, m.Name, table)
		}
		if m.ListFails {
			_, err := second.Status(t.Context(), m.Name)
			jobtest.MustNameRow(t, "Status", err, m.Name, table)
		}
	}
	mustRenewOthers(t, holder, held, rows, table)
	jobtest.MustListOthers(t, second, names, rows, table)
	for _, name := range good {
		release(t, held[name])
		waiting[name].Get(t)
		behind[name].Running(t, "before the first waiter released")
	}
}

// mustRenewOthers renews all leases in one call. Only those whose rows can't be read may fail.
func mustRenewOthers(t *testing.T, d *mysqllock.Driver, held map[string]driver.Lease, rows []jobtest.MalformedRow, table string) {
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
		case answer.Err != nil && slices.ContainsFunc(rows, func(m jobtest.MalformedRow) bool { return m.Name == names[i] && m.ListFails }):
			jobtest.MustNameRow(t, "Renew", answer.Err, names[i], table) // it was extended, and then could not be read
		case answer.Err != nil:
			t.Errorf("Renew of %q = %.1000v, want nil", names[i], answer.Err)
		}
	}
}
