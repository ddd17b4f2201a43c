package mysqllock_test

import (
	"fmt"
	"testing"

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
		{"PruneEachKind", prunesEachKind},
		{"PruneIgnoresHugeTokens", pruneIgnoresHugeTokens},
		{"RenewalIsOneStatement", renewalIsOneStatement},
		{"CutInEachState", cutInEachState},
		{"SlowAnswer", slowAnswer},
		{"WaiterOutlives", waiterOutlives},
		{"BreakWithoutAnswer", breakWithoutAnswer},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, server) })
	}
}

// A break whose answer is lost has broken the hold.
func breakWithoutAnswer(t *testing.T, server *mysqltest.Server) {
	proxy := livetest.NewProxy(t, server.Addr())
	d := newDriver(t, mysqltest.DSN(proxy.Addr()))
	l := acquire(t, d, request("broken", "a"))
	proxy.LoseAnswers(1, livetest.ThenClose, "UPDATE")
	if err := d.Break(testContext(t), "broken", l.ID()); err != nil {
		t.Errorf("Break = %v, want nil", err)
	}
}

// Many exclusive leases are renewed by one statement.
func renewalIsOneStatement(t *testing.T, server *mysqltest.Server) {
	admin := dial(t, server.DSN())
	d := newDriver(t, server.DSN())
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
