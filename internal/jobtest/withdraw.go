package jobtest

import (
	"testing"

	"github.com/sniblock/snib/driver"
)

// A Withdrawer is a RowDriver that can withdraw the requests of others.
type Withdrawer interface {
	RowDriver
	driver.Withdrawer
}

// Withdraw withdraws the first of two waiters, which is alive: it goes to the end of the queue. The
// hold that both wait for stays. open returns another driver.
func Withdraw(t *testing.T, open func() Withdrawer) {
	d, operator := open(), open()
	withdraw := func(owner string) {
		t.Helper()
		if err := operator.Withdraw(t.Context(), "queued", owner); err != nil {
			t.Fatalf("Withdraw = %v", err)
		}
	}
	withdraw("nobody")
	held := Acquire(t, d, rowRequest("queued", "a"))
	first, second := Waiting(t, open(), rowRequest("queued", "b")), Waiting(t, open(), rowRequest("queued", "c"))
	withdraw("a")
	withdraw("nobody")
	if err := d.Renew(t.Context(), []driver.Lease{held})[0].Err; err != nil {
		t.Fatalf("Renew of a hold whose owner was withdrawn = %v", err)
	}
	withdraw("b")
	Release(t, held)
	next := second.Get(t)
	first.Running(t, "although another one has the lock")
	Release(t, next)
	Release(t, first.Get(t))
}
