package redislock_test

import (
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// uniqueRequest is a request as the core sends it.
func uniqueRequest(name, owner string) driver.Request {
	req := request(name, owner, floor)
	req.UniqueOwner = true
	return req
}

// TestRecordFollows takes a lock as the core does. Its record, and with it the holder's details and
// the messages to the holder, follow soon.
func TestRecordFollows(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d, other := open(t, at(node.Addr())), open(t, at(node.Addr()))
	req := uniqueRequest("job", "holder")
	req.Holder.Label = "the label"
	req, wanted := jobtest.WithWanted(req)
	l := take(t, d, req)
	st, err := other.Status(t.Context(), "job")
	if err != nil || len(st.Holders) != 1 {
		t.Fatalf("Status = %+v, %v; want one holder", st, err)
	}
	if h := st.Holders[0]; h.Owner != "holder" || h.Token != token(l) || h.Holder.Label != "the label" {
		t.Errorf("the holder is %+v, want that of the lease with the token %d", h, token(l))
	}
	begin(t, other, uniqueRequest("job", "waiter"))
	select {
	case <-wanted:
	case <-time.After(enough):
		t.Error("the holder was not told that another process waits")
	}
}
