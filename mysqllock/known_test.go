package mysqllock_test

import (
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

// A process that knows a row takes the lock with one statement and frees it with another, whatever
// the kind of the hold, and prepares neither. It does not trust what it knows when another process
// has changed the row.
func TestKnownRow(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t, "max-prepared-stmt-count=0")
	db := dial(t, server.DSN())
	d, other := newDriver(t, server.DSN()), newDriver(t, server.DSN())
	for kind, req := range map[string]driver.Request{
		"exclusive": request("exclusive", "a"),
		"shared":    {Name: "shared", ID: "a", TTL: request("", "").TTL, Shared: true},
		"slots":     {Name: "slots", ID: "a", TTL: request("", "").TTL, Slots: 3},
	} {
		if _, err := d.Token(testContext(t), req.Name); err != nil { // creates the row, and so never prunes
			t.Fatal(err)
		}
		release(t, acquire(t, d, req))
		const questions = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'questions'"
		before := number(t, db, questions)
		for range 10 {
			release(t, acquire(t, d, req))
		}
		if got := number(t, db, questions) - before - 1; got != 20 {
			t.Errorf("10 cycles (%s) are %d statements, want 20", kind, got)
		}
		req.ID, req.Shared, req.Slots = "b", false, 0
		l := acquire(t, other, req)
		mustBeHeld(t, d, request(req.Name, "a"))
		release(t, l)
		if got := acquire(t, d, request(req.Name, "a")).Grant().Token; got <= l.Grant().Token {
			t.Errorf("Token (%s) = %d, want more than %d of another process", kind, got, l.Grant().Token)
		}
	}
}
