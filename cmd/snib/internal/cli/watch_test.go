package cli

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

// TestWatchRests checks that slow snapshots take a tenth of the time, and that a store that hung
// once, or failed, is read again soon.
func TestWatchRests(t *testing.T) {
	tests := []struct {
		name      string
		snapshots []time.Duration // how long each takes
		good      int             // how many succeed; the others fail
		want      time.Duration   // from the end of the last one to the next
	}{
		{"Fast", []time.Duration{10 * time.Millisecond}, 1, time.Second},
		{"Slow", []time.Duration{time.Second / 2}, 1, 9 * time.Second / 2},
		{"Hung", []time.Duration{8 * time.Second}, 1, 10 * time.Second},
		{"Failing", []time.Duration{8 * time.Second, 5 * time.Second}, 1, time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				var ended time.Time
				snapshots := 0
				list := func(func(driver.Status) bool) error {
					if snapshots == len(tt.snapshots) {
						if got := time.Since(ended); got != tt.want {
							t.Errorf("it rests for %v, want %v", got, tt.want)
						}
						cancel()
						return nil
					}
					time.Sleep(tt.snapshots[snapshots])
					ended = time.Now()
					if snapshots++; snapshots > tt.good {
						return errors.New("out of reach")
					}
					return nil
				}
				w := &watchCommand{app: &app{quiet: true}}
				if err := w.watch(ctx, &backend.Store{Driver: listedStore{list: list}}, ""); err != nil {
					t.Errorf("watch = %v", err)
				}
			})
		})
	}
}

// A listedStore lists its locks with a function.
type listedStore struct {
	driver.Driver
	list func(yield func(driver.Status) bool) error
}

func (l listedStore) List(_ context.Context, _ string, yield func(driver.Status) bool) error {
	return l.list(yield)
}

// TestWatchSlowLook checks that a lease that ends during a request counts as lost, not as
// released.
func TestWatchSlowLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		w := &watchCommand{app: &app{out: &out, err: io.Discard}, output: &choice{value: "json"}}
		// The snapshots are taken now and after a second. The second one takes 50 ms.
		ends, requests := time.Now().Add(minPause+20*time.Millisecond), 0
		s := &backend.Store{Driver: listedStore{list: func(yield func(driver.Status) bool) error {
			if requests++; requests > 1 {
				time.Sleep(50 * time.Millisecond)
			}
			st := driver.Status{Name: "lock"}
			if left := time.Until(ends); left > 0 {
				st.Holders = []driver.Holding{{ID: "a", Token: 1, Left: left}}
			}
			yield(st)
			return nil
		}}}
		ctx, cancel := context.WithTimeout(t.Context(), 2*minPause)
		defer cancel()
		if err := w.watch(ctx, s, "lock"); err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			_, rest, _ := strings.Cut(line, `"event":"`)
			kind, _, _ := strings.Cut(rest, `"`)
			got = append(got, kind)
		}
		if want := []string{eventHeld, eventLost}; !slices.Equal(got, want) {
			t.Errorf("events = %q, want %q", got, want)
		}
	})
}

// TestWatchKept checks that the end of a hold that its MinHold kept counts as its release.
func TestWatchKept(t *testing.T) {
	kept := driver.Holding{ID: "a", Token: 1, Left: time.Millisecond, Holder: driver.Holder{Kind: driver.KindKept}}
	next := driver.Holding{ID: "b", Token: 2, Left: time.Minute}
	was := snapshot{"lock": {Holders: []driver.Holding{kept}}}
	for want, now := range map[string]snapshot{eventReleased: {}, eventHanded: {"lock": {Holders: []driver.Holding{next}}}} {
		if got := holdEvents("lock", was, now, time.Second); len(got) != 1 || got[0].Event != want {
			t.Errorf("events = %+v, want one: %s", got, want)
		}
	}
}
