package cli

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
)

// A silentStore is a store that does not answer.
type silentStore struct{ driver.Driver }

func (silentStore) Status(ctx context.Context, _ string) (driver.Status, error) {
	<-ctx.Done()
	return driver.Status{}, context.Cause(ctx)
}

func (silentStore) List(context.Context, string, func(driver.Status) bool) error { return nil }

func (silentStore) Break(context.Context, string, string) error { return nil }

// TestReason checks the reason that is printed for a wait without a terminal, some time after a
// request has failed. If the store is known to serve, no message is needed.
func TestReason(t *testing.T) {
	if onTerminal() {
		t.Skip("there is a terminal")
	}
	refused := fmt.Errorf("%w: connection refused", snib.ErrUnavailable)
	tests := []struct {
		name    string
		store   driver.Driver // nil before it is open
		failure error
		age     time.Duration // of the failure
		want    string        // "" if it needs no message
	}{
		{"NotOpen", nil, nil, 0, ""},
		{"NotOpenFailed", nil, refused, 10 * time.Second, ": connection refused"},
		{"Failed", silentStore{memlock.New()}, refused, 0, ": connection refused"},
		{"FailedBefore", silentStore{memlock.New()}, refused, 10 * time.Second, ": test:: no answer within 1s"},
		{"Recovered", memlock.New(), refused, 10 * time.Second, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			acq := &acquirer{app: &app{}, req: driver.Request{Name: "name"}, lastErr: tt.failure, failedAt: time.Now().Add(-tt.age)}
			l := &waitLine{acq: acq}
			if tt.store != nil {
				l.store = &backend.Store{Driver: tt.store, URL: "test:"}
			}
			text, usual := l.reason()
			if usual != (tt.want == "") || !usual && text != tt.want {
				t.Errorf("reason = %q, usual: %v; want %q", text, usual, tt.want)
			}
		})
	}
}
