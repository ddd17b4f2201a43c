// Package rowstest has the tests of drivers that keep each lock in a row of a database, on real
// servers, and of locks that last as long as a transaction.
package rowstest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// A Driver is a driver that keeps each lock in a row of a database.
type Driver interface {
	driver.Driver
	Prune(ctx context.Context, unused time.Duration) error
}

// A Table is a table of locks into which tests write. It has the columns name, token and used.
type Table struct {
	Name   string
	Open   func() Driver // another driver, with connections of its own
	Exec   func(sql string)
	Number func(sql string) int64 // the result of a query
}

// age makes all locks look unused for two hours.
func (tb Table) age() {
	tb.Exec("UPDATE " + tb.Name + " SET used = used - 7200000000 WHERE name > ' '")
}

// count returns how many rows a lock has.
func (tb Table) count(name string) int64 {
	return tb.Number(fmt.Sprintf("SELECT count(*) FROM %s WHERE name = '%s'", tb.Name, name))
}

// token returns the token in the row of a lock.
func (tb Table) token(name string) uint64 {
	return uint64(tb.Number(fmt.Sprintf("SELECT token FROM %s WHERE name = '%s'", tb.Name, name)))
}

func rowRequest(name, id string) driver.Request {
	return driver.Request{Name: name, ID: id, TTL: time.Minute}
}

// tryAcquire calls Acquire without waiting.
func tryAcquire(t testing.TB, d driver.Driver, req driver.Request) (driver.Lease, error) {
	t.Helper()
	req.NoWait = true
	w := livetest.Acquiring(t, d, req)
	err := w.End(t)
	return w.Lease, err
}

// prune prunes several times.
func prune(t testing.TB, d Driver, times int) {
	t.Helper()
	for range times {
		if err := d.Prune(t.Context(), 0); err != nil {
			t.Fatalf("Prune = %.1000v", err)
		}
	}
}

// PruneKeepsTokens prunes a lock whose token is ahead of the clock, beside one that is held.
func PruneKeepsTokens(t *testing.T, tb Table) {
	d := tb.Open()
	livetest.Release(t, livetest.Acquire(t, d, rowRequest("old", "a")))
	held := livetest.Acquire(t, d, rowRequest("held", "a"))
	tb.Exec("UPDATE " + tb.Name + " SET token = token + 3600000000 WHERE name = 'old'")
	last := tb.token("old")
	if prune(t, d, 2); tb.count("old") != 1 {
		t.Error("a row was pruned that was used a moment ago")
	}
	tb.age()
	if prune(t, d, 1); tb.count("old") != 1 {
		t.Error("a row was pruned whose token was not noted")
	}
	if prune(t, d, 1); tb.count("old") != 0 {
		t.Error("a row was not pruned that was not used for long")
	}
	for _, name := range []string{"old", "new"} {
		if got := livetest.Acquire(t, d, rowRequest(name, "b")).Grant().Token; got <= last {
			t.Errorf("Token of the lock %q = %d, want more than %d, which was pruned", name, got, last)
		}
	}
	livetest.Release(t, held)
}

// PruneIgnoresHugeTokens has somebody write tokens that are far ahead of the clock. Only the locks
// of these rows may get such tokens.
func PruneIgnoresHugeTokens(t *testing.T, tb Table) {
	d := tb.Open()
	for name, token := range map[string]string{"huge": "9223372036854775807", "ahead": "token + 2 * 86400000000", "usual": "token + 3600000000"} {
		livetest.Release(t, livetest.Acquire(t, d, rowRequest(name, "a")))
		tb.Exec(fmt.Sprintf("UPDATE %s SET token = %s WHERE name = '%s'", tb.Name, token, name))
	}
	tb.age()
	d = tb.Open() // the first one may remember the rows as it wrote them
	ahead := tb.token("ahead")
	prune(t, d, 3)
	for name, want := range map[string]int64{"huge": 1, "ahead": 1, "usual": 0} {
		if got := tb.count(name); got != want {
			t.Errorf("after Prune there are %d rows of %q, want %d", got, name, want)
		}
	}
	if got := livetest.Acquire(t, d, rowRequest("new", "b")).Grant().Token; got >= ahead {
		t.Errorf("Token of a new name = %d, want less than %d", got, ahead)
	}
	if got := livetest.Acquire(t, d, rowRequest("ahead", "b")).Grant().Token; got <= ahead {
		t.Errorf("Token of a name whose token is ahead = %d, want more than %d", got, ahead)
	}
	MustNameRow(t, "Acquire", livetest.Acquiring(t, d, rowRequest("huge", "b")).End(t), "huge", tb.Name)
}

// PruneOthers prunes a lock beside malformed rows.
func PruneOthers(t *testing.T, tb Table, d Driver) {
	t.Helper()
	livetest.Release(t, livetest.Acquire(t, d, rowRequest("unused", "a")))
	tb.age()
	all := func() int64 { return tb.Number("SELECT count(*) FROM " + tb.Name) }
	before := all()
	if prune(t, d, 2); all() != before-1 {
		t.Errorf("Prune deleted %d rows, want the one that nobody has used", before-all())
	}
}
