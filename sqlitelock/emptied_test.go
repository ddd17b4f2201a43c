//go:build linux

package sqlitelock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// TestEmptied deletes the rows of a table, or the table, while drivers use it. Locks may be lost,
// their holders are told, and nobody needs to restart anything.
func TestEmptied(t *testing.T) {
	for _, table := range []string{"meta", "leases", "waiters"} {
		for _, how := range []string{"DELETE FROM ", "DROP TABLE "} {
			for _, first := range []string{"renewal", "release", "request", "newcomer", "status", "waiter"} {
				t.Run(fmt.Sprint(how, table, "/", first), func(t *testing.T) {
					path := newPath(t)
					d := open(t, path)
					l, idle := acquire(t, d, named("held")), acquire(t, d, named("idle"))
					w := livetest.Waiting(t, open(t, path), driver.Request{Name: "held", ID: "waiter", TTL: time.Minute})
					sql(t, path, how+table)
					var want error
					if table == "leases" {
						want = driver.ErrLost
					}
					steps := map[string]func(){
						"renewal": func() {
							if err := d.Renew(t.Context(), []driver.Lease{l})[0].Err; !errors.Is(err, want) {
								t.Errorf("Renew = %v, want %v", err, want)
							}
						},
						"release":  func() { checkErr(t, idle.Release(t.Context()), want) },
						"request":  func() { release(t, acquire(t, d, named("next"))) },
						"newcomer": func() { release(t, acquire(t, open(t, path), named("new"))) },
						"status": func() {
							_, err := d.Status(t.Context(), "any")
							checkErr(t, err, nil)
						},
						"waiter": func() {
							checkErr(t, l.Release(t.Context()), want)
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

func checkErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

func named(name string) driver.Request { return driver.Request{Name: name, ID: name, TTL: time.Minute} }
