package mysqllock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

func TestRows(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	for _, tt := range []struct {
		name string
		run  func(*testing.T, *mysqltest.Server)
	}{
		{"Prune", prunes},
		{"PruneIgnoresHugeTokens", pruneIgnoresHugeTokens},
		{"TwoConnections", twoConnections},
		{"RenewalIsOneStatement", renewalIsOneStatement},
		{"CutInEachState", cutInEachState},
		{"SlowAnswer", slowAnswer},
		{"WaiterOutlives", waiterOutlives},
		{"BreakWithoutAnswer", breakWithoutAnswer},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, server) })
	}
}

// With two connections, a driver polls instead of having the server watch. So it also finds a place
// that it could not withdraw.
func twoConnections(t *testing.T, server *mysqltest.Server) {
	db := dial(t, server.DSN())
	db.SetMaxOpenConns(2)
	d, other := newDriver(t, db), newDriver(t, dial(t, server.DSN()))
	l := acquire(t, other, request("one", "a"))
	w := livetest.Waiting(t, d, request("one", "b"))
	release(t, acquire(t, other, request("left", "a")))
	must(t, dial(t, server.DSN()), "UPDATE snib_locks SET version = 1, waiters = CONCAT("+
		"(SELECT SUBSTRING(name, 3) FROM snib_locks WHERE name LIKE X'007025' ORDER BY ends DESC LIMIT 1), "+
		`'-0 {"id":"gone"}\n') WHERE name = 'left'`)
	release(t, acquire(t, other, request("left", "b")))
	time.Sleep(300 * time.Millisecond) // it polls by now
	slack := livetest.Slack(t)
	began := time.Now()
	release(t, l)
	next := w.Get(t)
	took := w.At.Sub(began)
	if took > soonEnough+slack() {
		t.Errorf("granted %v after the release", took)
	}
	release(t, next)
}

// A break whose answer is lost has broken the hold.
func breakWithoutAnswer(t *testing.T, server *mysqltest.Server) {
	proxy := livetest.NewProxy(t, server.Addr())
	d := newDriver(t, dial(t, mysqltest.DSN(proxy.Addr())))
	l := acquire(t, d, request("broken", "a"))
	proxy.LoseAnswers(1, livetest.ThenClose, "UPDATE")
	if err := d.Break(testContext(t), "broken", l.ID()); err != nil {
		t.Errorf("Break = %v, want nil", err)
	}
}

// Many exclusive leases are renewed by one statement.
func renewalIsOneStatement(t *testing.T, server *mysqltest.Server) {
	admin := dial(t, server.DSN())
	d := newDriver(t, dial(t, server.DSN()))
	var leases []driver.Lease
	for i := range 200 {
		leases = append(leases, acquire(t, d, request(fmt.Sprint("many ", i), "a")))
	}
	count := func() int64 {
		return number(t, admin,
			"SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'COM_UPDATE'")
	}
	for i := range 2 {
		before := count()
		for i, r := range d.Renew(testContext(t), leases) {
			if r.Err != nil {
				t.Fatalf("Renew of lease %d = %v", i, r.Err)
			}
		}
		if got := count() - before; got != 1 {
			t.Errorf("renewal %d of 200 leases took %d statements, want 1", i, got)
		}
	}
}
