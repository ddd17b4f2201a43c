//go:build linux

package sqlitelock

import (
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// TestEmptied deletes the rows of a table, or the table, while drivers use it. No lock is lost, and
// nobody needs to restart anything. The suite deletes the table of leases.
func TestEmptied(t *testing.T) {
	for _, table := range []string{"meta", "waiters"} {
		for _, how := range []string{"DELETE FROM ", "DROP TABLE "} {
			for _, first := range []string{"renewal", "release", "request", "newcomer", "status", "waiter"} {
				t.Run(fmt.Sprint(how, table, "/", first), func(t *testing.T) {
					path := newPath(t)
					d := open(t, path)
					l, idle := acquire(t, d, named("held")), acquire(t, d, named("idle"))
					w := livetest.Waiting(t, open(t, path), driver.Request{Name: "held", ID: "waiter", TTL: time.Minute})
					sql(t, path, how+table)
					steps := map[string]func(){
						"renewal": func() {
							if err := d.Renew(t.Context(), []driver.Lease{l})[0].Err; err != nil {
								t.Errorf("Renew = %v", err)
							}
						},
						"release":  func() { release(t, idle) },
						"request":  func() { release(t, acquire(t, d, named("next"))) },
						"newcomer": func() { release(t, acquire(t, open(t, path), named("new"))) },
						"status": func() {
							if _, err := d.Status(t.Context(), "any"); err != nil {
								t.Errorf("Status = %v", err)
							}
						},
						"waiter": func() {
							release(t, l)
							release(t, w.Get(t))
						},
					}
					steps[first]()
					delete(steps, first)
					for _, step := range []string{"renewal", "release", "request", "newcomer", "status", "waiter"} {
						if step != first && !(step == "renewal" && first == "waiter") {
							steps[step]()
						}
					}
				})
			}
		}
	}
}

func named(name string) driver.Request { return driver.Request{Name: name, ID: name, TTL: time.Minute} }
