package trial

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/servers"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/history"
)

// TestSchedule checks that a seed makes one schedule.
func TestSchedule(t *testing.T) {
	text := func(seed uint64) (text string) {
		for _, s := range newSchedule(Target{Store: Redis}, Faults(), seed) {
			text += fmt.Sprint(s.fault.Name, s.client, s.number, ";")
		}
		return text
	}
	if got := text(7); strings.Count(got, ";") != faultsPerTrial || got != text(7) || got == text(8) {
		t.Errorf("the schedules of seeds 7, 7 and 8 are %s, %s and %s", got, text(7), text(8))
	}
}

// TestAwaitGrant checks how long the judge waits for a grant that comes after the last fault.
func TestAwaitGrant(t *testing.T) {
	const healed = 10
	tests := []struct {
		name   string
		came   int64         // when a grant came
		logged time.Duration // after how much of the wait it was recorded
		want   time.Duration
	}{
		{"Soon", healed + 1, time.Second, time.Second},
		{"Late", healed + 1, time.Minute, bound},
		{"BeforeTheWait", healed + 1, 0, 0},
		{"CameBefore", healed - 1, 0, bound},
		{"CameBeforeAndIsRecordedLater", healed - 1, time.Second, bound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &trial{began: driver.Now().Add(-time.Second), store: &store{}}
				grant := func() { b.log(history.Event{At: tt.came, Kind: history.Acquired}) }
				if tt.logged == 0 {
					grant()
				} else {
					timer := time.AfterFunc(tt.logged, grant)
					defer timer.Stop()
				}
				began := time.Now()
				waited := b.awaitGrant(t.Context(), healed, bound)
				if got := time.Since(began); got < tt.want || got > tt.want+time.Second {
					t.Errorf("it waits %v, want %v", got, tt.want)
				}
				if real := time.Duration(b.now() - healed); waited <= 0 || waited > real {
					t.Errorf("it says that it has waited %v of %v", waited, real)
				}
			})
		})
	}
}

// TestMeetEnds checks that the director does not wait for a client that has ended with the run.
func TestMeetEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		b := &trial{}
		c := b.newClient(0, "A")
		for range 3 {
			(&strike{ctx: ctx, b: b}).meet(c, servers.Acquiring, func() { t.Error("a client that has ended is met") }) // nobody takes the first
		}
	})
}
