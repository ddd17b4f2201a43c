package access

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// wait returns how long a client must wait before its credential is checked.
func wait(th *throttle, addr netip.Addr, credential string, now time.Time) time.Duration {
	var blocked *BlockedError
	if errors.As(th.try(addr, credential, now), &blocked) {
		return blocked.RetryAfter
	}
	return 0
}

func TestThrottle(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	th := newThrottle()
	attacker := netip.MustParseAddr("192.0.2.1")

	if got := wait(th, attacker, "good", now); got != 0 {
		t.Fatalf("the first credential waits %v", got)
	}
	th.worked(attacker, "good")
	for i := range failureBurst {
		if wait := wait(th, attacker, fmt.Sprint(i), now); wait != 0 {
			t.Fatalf("failure %d waits %v, want 0: a credential that worked is no failure", i, wait)
		}
	}
	if wait := wait(th, attacker, "next", now); wait != failureInterval {
		t.Errorf("after %d failures the wait is %v, want %v", failureBurst, wait, failureInterval)
	}
	if wait := wait(th, attacker, "good", now); wait != 0 {
		t.Errorf("a credential that worked waits %v for the failures of others, want 0", wait)
	}
	if wait := wait(th, netip.MustParseAddr("192.0.2.2"), "other", now); wait != 0 {
		t.Errorf("another address waits %v, want 0", wait)
	}
	now = now.Add(failureInterval)
	if wait := wait(th, attacker, "next", now); wait != 0 {
		t.Errorf("after %v the wait is %v, want 0", failureInterval, wait)
	}
	if wait := wait(th, attacker, "one more", now); wait != failureInterval {
		t.Errorf("the wait after that is %v, want %v", wait, failureInterval)
	}
}

// TestThrottleManyAddresses checks that neither the memory nor the failures are without bound
// for a client that has many addresses.
func TestThrottleManyAddresses(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	th := newThrottle()
	good := netip.MustParseAddr("192.0.2.1")
	if got := wait(th, good, "good", now); got != 0 {
		t.Fatalf("the first credential waits %v", got)
	}
	th.worked(good, "good")
	stranger := func(i int) netip.Addr {
		return netip.AddrFrom16([16]byte{0: 0x20, 4: byte(i >> 16), 5: byte(i >> 8), 6: byte(i)})
	}
	guess := func(i int) bool { return wait(th, stranger(i), "guess", now) == 0 }
	for i := range 2 * throttleSize {
		if !guess(i) {
			t.Fatalf("guess %d waits, although those before could not be checked", i)
		}
		th.giveBack(stranger(i))
	}
	if got := len(th.clients); got != 1 {
		t.Errorf("it remembers %d clients, want 1: the others have not failed", got)
	}
	tried := 0
	for i := range 2 * throttleSize {
		if guess(i) {
			tried++
		}
	}
	if tried != allBurst {
		t.Errorf("%d guesses of many addresses were checked at once, want %d", tried, allBurst)
	}
	if got := wait(th, good, "good", now); got != 0 {
		t.Errorf("after that, a credential that worked waits %v, want 0", got)
	}
	for i := range 2 * throttleSize {
		now = now.Add(allInterval)
		guess(i)
	}
	if got := len(th.clients); got != throttleSize || th.recent.Len() != got {
		t.Errorf("it remembers %d clients in a list of %d, want %d", got, th.recent.Len(), throttleSize)
	}
}
