package mysqllock_test

import (
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

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
			for i, m := range tt.rows {
				tt.rows[i].MayRenew = m.ListFails
			}
			tb := lockTable(t, server, table, func(db *sql.DB) *mysqllock.Driver {
				return tt.open(t, db, append(tt.opts, mysqllock.Table(table))...)
			})
			jobtest.MalformedRows(t, tb, tt.rows, tt.shared, nil)
		})
	}
}
