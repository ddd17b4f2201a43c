package rowstest

import (
	"errors"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// Emptied empties, truncates and drops a table of locks while drivers use it. The locks are lost,
// their holders are told, and nobody needs to restart anything. open opens a driver for a table.
func Emptied(t *testing.T, open func(t *testing.T, table string) driver.Driver, exec func(sql string)) {
	for _, how := range []struct{ name, sql string }{
		{"deleted", "DELETE FROM "}, {"truncated", "TRUNCATE TABLE "}, {"dropped", "DROP TABLE "},
	} {
		for _, first := range []string{"renewal", "release", "request", "newcomer", "waiter"} {
			t.Run(how.name+"/"+first, func(t *testing.T) {
				table := how.name + "_" + first
				d := open(t, table)
				l, idle := livetest.Acquire(t, d, rowRequest("held", "a")), livetest.Acquire(t, d, rowRequest("idle", "a"))
				w := livetest.Waiting(t, open(t, table), rowRequest("held", "b"))
				exec(how.sql + table)
				steps := map[string]func(){
					"renewal": func() {
						if err := d.Renew(t.Context(), []driver.Lease{l})[0].Err; !errors.Is(err, driver.ErrLost) {
							t.Errorf("Renew = %v, want ErrLost", err)
						}
					},
					"release": func() {
						if err := idle.Release(t.Context()); !errors.Is(err, driver.ErrLost) {
							t.Errorf("Release = %v, want ErrLost", err)
						}
					},
					"request": func() {
						next, err := tryAcquire(t, d, rowRequest("next", "a"))
						if err != nil {
							t.Errorf("Acquire = %v", err)
							return
						}
						if next.Grant().Token <= idle.Grant().Token {
							t.Errorf("token %d after %d", next.Grant().Token, idle.Grant().Token)
						}
						livetest.Release(t, next)
					},
					"newcomer": func() {
						next, err := tryAcquire(t, open(t, table), rowRequest("new", "a"))
						if err != nil {
							t.Errorf("Acquire of a new process = %v", err)
							return
						}
						livetest.Release(t, next)
					},
					"waiter": func() { livetest.Release(t, w.Get(t)) },
				}
				steps[first]()
				delete(steps, first)
				for _, step := range steps {
					step()
				}
			})
		}
	}
}
