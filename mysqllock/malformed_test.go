package mysqllock_test

import (
	"database/sql"
	"errors"
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

// A malformation is a change of a row by somebody who may write the table.
type malformation struct {
	name   string // of the lock
	change string

	// Whether a renewal, the list and a waiter report an error for the row.
	renewFails, listFails, waitFails bool
}

var malformations = []malformation{
	{"WaiterText", "waiters = CONCAT(waiters, 'x-1 no object\n')", false, true, true},
	{"WaiterOwner", `waiters = CONCAT(waiters, 'x-1 {"owner": 7}\n')`, false, true, true},
	{"WaiterLong", "waiters = CONCAT(waiters, REPEAT('9', 100000), '\n')", false, true, true},
	{"HolderText", "holder = 'nobody'", false, true, true},
	{"HolderGone", "holder = ''", false, true, true},
	{"HoldersText", "holders = 'nobody'", false, true, true},
	{"KeptNumber", "kept = 2", true, true, true},
	{"VersionHuge", "version = 9223372036854775807", true, false, false},
}

// TestMalformedRow writes malformed rows into a table. Requests about these locks fail and
// say why. All other locks are renewed, granted in the order of arrival, and listed.
func TestMalformedRow(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	session := []malformation{
		{"SessionLong", `holder = REPLACE(holder, '"session":"', CONCAT('"session":"', REPEAT('x', 300)))`, true, true, true},
	}
	for _, m := range malformations {
		m.renewFails = m.listFails // a session reads
		session = append(session, m)
	}
	readers := append(slices.Clone(malformations[:2]),
		malformation{"HoldersText", "holders = 'nobody'", true, true, true})
	for i := range 2 {
		readers[i].renewFails = true // a renewal of readers reads
	}
	tests := []struct {
		name   string
		open   func(testing.TB, *sql.DB, ...mysqllock.Option) *mysqllock.Driver
		opts   []mysqllock.Option
		shared bool
		rows   []malformation
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

func testMalformedRow(t *testing.T, db *sql.DB, table string, shared bool, rows []malformation, open func() *mysqllock.Driver) {
	holder, first, second := open(), open(), open()
	good := []string{"a", "m", "z"}
	names := slices.Clone(good)
	for _, m := range rows {
		names = append(names, m.name)
	}
	held, waiting := map[string]driver.Lease{}, map[string]*jobtest.Waiter{}
	for _, name := range names {
		req := request(name, "holder")
		req.Shared = shared
		held[name] = acquire(t, holder, req)
		waiting[name] = jobtest.Waiting(t, first, request(name, "first"))
	}
	for _, m := range rows {
		must(t, db, fmt.Sprintf("UPDATE %s SET %s WHERE name = ?", table, m.change), []byte(m.name))
	}
	behind := map[string]*jobtest.Waiter{}
	for _, name := range good {
		behind[name] = jobtest.Waiting(t, second, request(name, "second"))
	}
	time.Sleep(4 * time.Second) // longer than a waiter counts without a heartbeat

	for _, m := range rows {
		if m.waitFails {
			mustNameRow(t, "the wait", waiting[m.name].End(t), m.name, table)
			_, err := tryAcquire(t, second, request(m.name, "another"))
			mustNameRow(t, "Acquire", err, m.name, table)
		}
		if m.listFails {
			_, err := second.Status(t.Context(), m.name)
			mustNameRow(t, "Status", err, m.name, table)
		}
	}
	mustRenewOthers(t, holder, held, rows, table)
	mustListOthers(t, second, names, rows, table)
	for _, name := range good {
		release(t, held[name])
		waiting[name].Get(t)
		behind[name].Running(t, "before the first waiter released")
	}
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
func mustRenewOthers(t *testing.T, d *mysqllock.Driver, held map[string]driver.Lease, rows []malformation, table string) {
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
		case answer.Err != nil && slices.ContainsFunc(rows, func(m malformation) bool { return m.name == names[i] && m.listFails }):
			mustNameRow(t, "Renew", answer.Err, names[i], table) // it was extended, and then could not be read
		case answer.Err != nil:
			t.Errorf("Renew of %q = %.1000v, want nil", names[i], answer.Err)
		}
	}
}

// mustListOthers lists all locks but those whose rows can't be read. The error names the first of
// these.
func mustListOthers(t *testing.T, d *mysqllock.Driver, names []string, rows []malformation, table string) {
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
