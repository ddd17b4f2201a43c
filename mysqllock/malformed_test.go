package mysqllock_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit/rows"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/rowstest"
)

var malformations = []rowstest.MalformedRow{
	{Name: "WaiterText", Change: "waiters = CONCAT(waiters, 'x-1 no object\n')", ListFails: true, WaitFails: true},
	{Name: "WaiterID", Change: `waiters = CONCAT(waiters, 'x-1 {"id": 7}\n')`, ListFails: true, WaitFails: true},
	{Name: "WaiterLong", Change: "waiters = CONCAT(waiters, REPEAT('9', 100000), '\n')", ListFails: true, WaitFails: true},
	{Name: "HolderGone", Change: "holders = ''", ListFails: true, WaitFails: true},
	{Name: "HoldersText", Change: "holders = 'nobody'", ListFails: true, WaitFails: true},
}

// wildRows have values by which drivers tell the living from the dead. Each of them is well-formed
// and absurd.
var wildRows = []rowstest.MalformedRow{
	{Name: "EndsZero", Change: "ends = 0", Ends: true},
	{Name: "EndsMin", Change: "ends = -9223372036854775808", Ends: true},
	{Name: "EndsMax", Change: "ends = 9223372036854775807"},
	{Name: "SinceMin", Change: `holders = REGEXP_REPLACE(holders, '"since":[0-9]*', '"since":-9223372036854775808')`},
	{Name: "SinceMax", Change: `holders = REGEXP_REPLACE(holders, '"since":[0-9]*', '"since":9223372036854775807')`},
	{Name: "TTLZero", Change: "ttl = 0"},
	{Name: "TTLMax", Change: "ttl = 9223372036854775807"},
	{Name: "TTLNegative", Change: "ttl = -1"},
	{Name: "MinHoldMax", Change: `holders = REPLACE(holders, '"since"', '"min_hold":9223372036854775807,"since"')`},
	{Name: "WaiterSinceMin",
		Change: `waiters = REGEXP_REPLACE(waiters, '"since":[0-9]*', '"since":-9223372036854775808')`},
	{Name: "WaiterDead", Change: `waiters = CONCAT(waiters, 'x-1 {"id":"x","since":9223372036854775807}\n')`},
	{Name: "UsedMin", Change: "used = -9223372036854775808"},
	{Name: "UsedMax", Change: "used = 9223372036854775807"},
	{Name: "VersionMin", Change: "version = -9223372036854775808"},
	{Name: "VersionMax", Change: "version = 9223372036854775807"},
}

// versioned returns the same changes with a new version: otherwise a driver may write over them.
func versioned(all []rowstest.MalformedRow) []rowstest.MalformedRow {
	all = slices.Clone(all)
	for i := range all {
		if !strings.HasPrefix(all[i].Change, "version") {
			all[i].Change += ", version = version + 1"
		}
	}
	return all
}

// TestWildRow writes absurd values into a table. They end at most the lease of their own row.
func TestWildRow(t *testing.T) {
	t.Parallel()
	server := database(t)
	until := func(value string) string {
		return `holders = REGEXP_REPLACE(holders, '"until":[0-9]*', '"until":` + value + `')`
	}
	ttl := func(value string) string {
		return `holders = REGEXP_REPLACE(holders, '"ttl":[0-9]*', '"ttl":` + value + `')`
	}
	readers := []rowstest.MalformedRow{
		{Name: "TTLNull", Change: ttl("null")},
		{Name: "TTLMax", Change: ttl("9223372036854775807")},
		{Name: "TTLText", Change: ttl(`"long"`), RenewFails: true, ListFails: true, WaitFails: true},
		{Name: "TTLOverflow", Change: ttl("92233720368547758070"), RenewFails: true, ListFails: true, WaitFails: true},
		{Name: "UntilNull", Change: until("null"), Ends: true},
		{Name: "UntilZero", Change: until("0"), Ends: true},
		{Name: "UntilMin", Change: until("-9223372036854775808"), Ends: true},
		{Name: "UntilMax", Change: until("9223372036854775807")},
		{Name: "UntilText", Change: until(`"soon"`), RenewFails: true, ListFails: true, WaitFails: true},
		{Name: "UntilOverflow", Change: until("92233720368547758070"), RenewFails: true, ListFails: true, WaitFails: true},
	}
	for name, rows := range map[string][]rowstest.MalformedRow{"Rows": wildRows, "Readers": readers} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tb := lockTable(t, server, "wild_"+name)
			rowstest.MalformedRows(t, tb, versioned(rows), name == "Readers", nil)
		})
	}
}

// TestWildProcess writes absurd values into the row of a process. Its waiters keep their places.
func TestWildProcess(t *testing.T) {
	t.Parallel()
	server := database(t)
	db := dial(t, server.DSN())
	holder, behind := newDriver(t, server.DSN()), newDriver(t, server.DSN())
	type waiting struct {
		name          string
		l             driver.Lease
		first, second *livetest.Waiter
	}
	var all []waiting
	for _, change := range []string{
		"ends = 0", "ends = -9223372036854775808", "ends = 9223372036854775807", "version = -9223372036854775808",
		"version = 9223372036854775807",
		"used = 9223372036854775807", "token = 9223372036854775807", "ttl = -1", "holders = 'nobody'",
		"waiters = 'nobody'",
	} {
		w := waiting{name: change, l: acquire(t, holder, request(change, "holder"))}
		w.first = livetest.Waiting(t, newDriver(t, server.DSN()), request(change, "first"))
		w.second = livetest.Waiting(t, behind, request(change, "second"))
		all = append(all, w)
		res, err := db.Exec("UPDATE snib_locks p JOIN snib_locks l ON l.name = ? AND p.name = CONCAT('\\0p', "+
			"SUBSTRING_INDEX(l.waiters, '-', 1)) SET p."+change, change)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := res.RowsAffected(); n != 1 || err != nil {
			t.Fatalf("%s changed %d rows, %v; want 1", change, n, err)
		}
	}
	for _, w := range all {
		var queue []driver.Waiting
		livetest.Await(t, "waiter that has waited for longer than it keeps its place without a heartbeat", func() error {
			st, err := holder.Status(t.Context(), w.name)
			queue = st.Waiters
			if err == nil && (len(queue) == 0 || queue[len(queue)-1].Waited < rows.HeartbeatTimeout+2*rows.HeartbeatInterval) {
				err = fmt.Errorf("status %+v", st)
			}
			return err
		})
		if len(queue) != 2 || queue[0].ID != "first" {
			t.Errorf("after %s, the queue is %+v, want the first and the second waiter", w.name, queue)
		}
		release(t, w.l)
		next := w.first.Get(t)
		w.second.Running(t, "before the first waiter of "+w.name+" released")
		release(t, next)
		release(t, w.second.Get(t))
	}
}

// TestMalformedRow writes malformed rows into a table. Requests about these locks fail and
// say why. All other locks are renewed, granted in the order of arrival, and listed.
func TestMalformedRow(t *testing.T) {
	t.Parallel()
	server := database(t)
	readers := append(slices.Clone(malformations[:2]),
		rowstest.MalformedRow{Name: "HoldersText", Change: "holders = 'nobody'", RenewFails: true, ListFails: true,
			WaitFails: true})
	for i := range 2 {
		readers[i].RenewFails = true // a renewal of readers reads
	}
	for name, rows := range map[string][]rowstest.MalformedRow{"Rows": malformations, "Readers": readers} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i, m := range rows {
				rows[i].MayRenew = m.ListFails
			}
			tb := lockTable(t, server, "malformed_"+name)
			rowstest.MalformedRows(t, tb, versioned(rows), name == "Readers", nil)
		})
	}
}
