package cli

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
)

// A tellingStore has a lock that is not granted for a minute. Meanwhile it tells the waiter one
// thing after the other, three seconds apart.
type tellingStore struct {
	driver.Driver
	tells []error
}

func (s tellingStore) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	for _, err := range s.tells {
		req.NoteWait(err)
		time.Sleep(3 * time.Second)
	}
	time.Sleep(time.Minute)
	return s.Driver.Acquire(ctx, req)
}

// TestOutageIsTold checks that a wait without a terminal tells of an outage, once, also if the
// request is queued. A wait for a holder needs no line.
func TestOutageIsTold(t *testing.T) {
	if onTerminal() {
		t.Skip("there is a terminal")
	}
	refused, full := fmt.Errorf("%w: connection refused", snib.ErrUnavailable), fmt.Errorf("%w: too many", snib.ErrFull)
	for name, tt := range map[string]struct {
		tells []error
		want  string
	}{
		"Held":       {[]error{nil}, ""},
		"Refused":    {[]error{refused}, "snib: waiting for name: connection refused\n"},
		"HeldBefore": {[]error{nil, refused}, "snib: waiting for name: connection refused\n"},
		"Twice":      {[]error{full, nil, refused}, "snib: waiting for name: " + message(full) + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				acq := &acquirer{app: &app{err: &out}, waitFlags: waitFlags{wait: &duration{}}}
				locker, err := snib.New(recordingDriver{tellingStore{memlock.New(), tt.tells}, acq})
				if err != nil {
					t.Fatal(err)
				}
				defer locker.Close()
				lock, err := acq.acquire(locker, &backend.Store{}, []string{"name"}, nil)
				if err != nil || lock.Release() != nil || out.String() != tt.want {
					t.Errorf("the wait ends with %v, and says %q, want %q", err, out.String(), tt.want)
				}
			})
		})
	}
}
