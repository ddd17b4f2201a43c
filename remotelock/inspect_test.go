package remotelock

import (
	"testing"

	"github.com/sniblock/snib/remotelock/wire"
)

// TestHiddenWaiters checks that waiters whose ids the service does not show are told apart, and
// found again in the next answer.
func TestHiddenWaiters(t *testing.T) {
	first, second := wire.Process{Host: "a", PID: 1}, wire.Process{Host: "a", PID: 2}
	before := statusOf(&wire.Lock{Waiters: []wire.Waiter{{Process: first}, {Process: second}}}).Waiters
	after := statusOf(&wire.Lock{Waiters: []wire.Waiter{{Process: second, Waited: 1000}}}).Waiters
	if before[0].ID == before[1].ID || before[1].ID != after[0].ID {
		t.Errorf("ids %q and %q, and then %q; want two, and the second again", before[0].ID, before[1].ID, after[0].ID)
	}
}
