package cli

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

// A motion is a store in which a lock is in one state when all are listed, and in another when it is looked at again.
type motion struct {
	driver.Driver
	listed, later driver.Status
}

func (m motion) List(_ context.Context, _ string, yield func(driver.Status) bool) error {
	yield(m.listed)
	return nil
}
func (m motion) Status(context.Context, string) (driver.Status, error) { return m.later, nil }
func (m motion) Break(context.Context, string, string, uint64) error   { return driver.ErrLost }

// TestLeaksLookTwice: what was seen once, and is otherwise a second later, is no leak.
func TestLeaksLookTwice(t *testing.T) {
	held := func(owner string, token uint64) driver.Status {
		return driver.Status{Name: "lock", Holders: []driver.Holding{{Owner: owner, Token: token, Endless: true, Left: time.Hour}}}
	}
	queue := func(first string, waited time.Duration) driver.Status {
		return driver.Status{Name: "lock", Waiters: []driver.Waiting{{Owner: first, Waited: waited}}}
	}
	tests := []struct {
		name          string
		listed, later driver.Status
		want          int
	}{
		{"Stays", held("a", 1), held("a", 1), 1},
		{"Ended", held("a", 1), driver.Status{Name: "lock"}, 0},
		{"NextHold", held("a", 1), held("a", 2), 0},
		{"NextOwner", held("a", 1), held("b", 1), 0},
		{"Jammed", queue("a", time.Minute), queue("a", time.Minute), 1},
		{"LetIn", queue("a", time.Minute), held("a", 1), 0},
		{"Moves", queue("a", time.Minute), queue("b", time.Minute), 0},
		{"JustCame", queue("a", time.Second), queue("a", 2*time.Second), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := &leaking{app: &app{out: io.Discard, err: io.Discard, quiet: true}, held: &duration{}, limit: 10}
			found, err := l.find(t.Context(), &backend.Store{Driver: motion{listed: tt.listed, later: tt.later}}, "")
			if err != nil || len(found) != tt.want {
				t.Errorf("find = %+v, %v, want %d leaks", found, err, tt.want)
			}
		})
	}
}
