package pglock_test

import (
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/rowstest"
)

var malformations = []rowstest.MalformedRow{
	{Name: "HoldersObject", Change: `holders = '{}'`, RenewFails: true, ListFails: true, WaitFails: true},
	{Name: "HoldersNumber", Change: `holders = '5'`, RenewFails: true, ListFails: true, WaitFails: true},
	{Name: "WaitersObject", Change: `waiters = '{"a": 1}'`, ListFails: true, WaitFails: true},
	{Name: "UntilText", Change: `holders = jsonb_set(holders, '{0,until}', '"soon"')`, RenewFails: true, ListFails: true,
		WaitFails: true},
	{Name: "UntilLong", Change: `holders = jsonb_set(holders, '{0,until}', to_jsonb(repeat('9', 100000)))`,
		RenewFails: true, ListFails: true, WaitFails: true},
	{Name: "UntilFraction", Change: `holders = jsonb_set(holders, '{0,until}', '1.5')`, RenewFails: true, ListFails: true,
		WaitFails: true},
	{Name: "WaiterUntilText", Change: `waiters = waiters || '[{"nonce": "x-1", "until": "soon"}]'`, ListFails: true,
		WaitFails: true},
	{Name: "SharedText", Change: `holders = jsonb_set(holders, '{0,shared}', '"perhaps"')`, ListFails: true,
		WaitFails: true},
	{Name: "HostNumber", Change: `holders = jsonb_set(holders, '{0,host}', '7')`, ListFails: true, WaitFails: true},
	{Name: "TTLHuge", Change: `holders = jsonb_set(holders, '{0,ttl}', '9223372036854775807')`, WaitFails: true},
	{Name: "UntilOverflow", Change: `holders = jsonb_set(holders, '{0,until}', '92233720368547758070')`, RenewFails: true,
		ListFails: true, WaitFails: true},
	{Name: "WaiterUntilOverflow", Change: `waiters = waiters || '[{"nonce": "x-1", "until": 92233720368547758070}]'`,
		ListFails: true, WaitFails: true},
	{Name: "SinceText", Change: `holders = jsonb_set(holders, '{0,since}', '"then"')`, ListFails: true, WaitFails: true},
}

// wildRows have values by which drivers tell the living from the dead. Each of them is well-formed
// and absurd.
var wildRows = []rowstest.MalformedRow{
	{Name: "UntilNull", Change: `holders = jsonb_set(holders, '{0,until}', 'null')`, Ends: true},
	{Name: "UntilZero", Change: `holders = jsonb_set(holders, '{0,until}', '0')`, Ends: true},
	{Name: "UntilMin", Change: `holders = jsonb_set(holders, '{0,until}', '-9223372036854775808')`, Ends: true},
	{Name: "UntilMax", Change: `holders = jsonb_set(holders, '{0,until}', '9223372036854775807')`},
	{Name: "TTLNull", Change: `holders = jsonb_set(holders, '{0,ttl}', 'null')`},
	{Name: "TTLNegative", Change: `holders = jsonb_set(holders, '{0,ttl}', '-1')`, Ends: true},
	{Name: "SinceNull", Change: `holders = jsonb_set(holders, '{0,since}', 'null')`},
	{Name: "SinceMin", Change: `holders = jsonb_set(holders, '{0,since}', '-9223372036854775808')`},
	{Name: "SinceMax", Change: `holders = jsonb_set(holders, '{0,since}', '9223372036854775807')`},
	{Name: "WaiterUntilNull", Change: `waiters = jsonb_set(waiters, '{0,until}', 'null')`},
	{Name: "WaiterUntilMin", Change: `waiters = jsonb_set(waiters, '{0,until}', '-9223372036854775808')`},
	{Name: "WaiterUntilMax", Change: `waiters = jsonb_set(waiters, '{0,until}', '9223372036854775807')`},
	{Name: "WaiterDead",
		Change: `waiters = waiters || '[{"id": "x", "nonce": "x-1", "shared": false, "until": 9223372036854775807}]'`},
	{Name: "WaiterSinceMin", Change: `waiters = jsonb_set(waiters, '{0,since}', '-9223372036854775808')`},
	{Name: "NoToken", Change: `holders = holders #- '{0,token}'`},
	{Name: "UsedMin", Change: `used = -9223372036854775808`},
	{Name: "UsedMax", Change: `used = 9223372036854775807`},
}

// TestWildRow writes absurd values into a table. They end at most the lease of their own row.
func TestWildRow(t *testing.T) {
	t.Parallel()
	server := database(t)
	rowstest.MalformedRows(t, lockTable(t, server, dial(t, server.URL()), "wild_rows"), wildRows, false, nil)
}

// TestMalformedRow writes malformed rows into a table. Requests about these locks fail and
// say why. All other locks are renewed, granted in the order of arrival, listed and pruned.
func TestMalformedRow(t *testing.T) {
	t.Parallel()
	server := database(t)
	const table = "malformed_rows"
	pool := dial(t, server.URL())
	tb := lockTable(t, server, pool, table)
	rowstest.MalformedRows(t, tb, malformations, false,
		func(d rowstest.Driver, m driver.Lease, told map[string]chan error) {
			// A false notification makes the holder look at a row that can't be read.
			must(t, pool, `SELECT pg_notify(e->>'channel', 'b' || (e->>'nonce')) FROM `+table+`
			CROSS JOIN LATERAL jsonb_array_elements(holders) e WHERE name = 'UntilText'`)
			if err := d.Break(t.Context(), "m", m.ID()); err != nil {
				t.Fatalf("Break = %v", err)
			}
			select {
			case <-told["m"]:
			case <-time.After(livetest.Patience):
				t.Errorf("the holder was not told within %v that its lease was broken", livetest.Patience)
			}
			select {
			case why := <-told["UntilText"]:
				t.Errorf("the holder of a lock whose row can't be read was told %v", why)
			default:
			}
			rowstest.PruneOthers(t, tb, d)
		})
}
