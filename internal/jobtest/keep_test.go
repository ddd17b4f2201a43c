package jobtest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/memlock"
)

// A lock that is kept outlives its TTL. When it is abandoned, it is
// not free before its TTL is over.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(memlock.Store)
		abandon := jobtest.Keep(t, s.Open(), driver.Request{Name: "kept", ID: "one", TTL: time.Minute})
		other := s.Open()
		req := driver.Request{Name: "kept", ID: "two", TTL: time.Minute}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := other.Acquire(ctx, req); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Acquire while it is kept = %v, want that the time is over", err)
		}
		began := time.Now()
		abandon()
		if _, err := other.Acquire(t.Context(), req); err != nil {
			t.Fatalf("Acquire when it is abandoned = %v", err)
		}
		if took := time.Since(began); took < 40*time.Second || took > time.Minute {
			t.Errorf("it is free after %v, want the rest of its TTL", took)
		}
	})
}
