package redislock_test

import (
	"testing"

	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// TestUntoldLease checks that the driver remembers no lease whose holder wants to be told nothing,
// as those of a lock service: it may lapse, or be released elsewhere.
func TestUntoldLease(t *testing.T) {
	t.Parallel()
	d := open(t, at(used(t, redistest.Single(t)).Addr()))
	req := request("job", "id", floor)
	req.OnLost, req.OnWanted = nil, nil
	take(t, d, req)
	if redislock.HasLeases(d) {
		t.Error("the driver remembers a lease that nobody wants to be told of")
	}
	free(t, d.Lease("job", "id", floor))
	req.ID, req.OnLost = "told", func(error) {}
	l := take(t, d, req)
	if !redislock.HasLeases(d) {
		t.Error("the driver does not remember a lease whose loss it must tell")
	}
	free(t, l)
}
