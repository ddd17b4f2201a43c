//go:build linux

package nemesis

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/history"
)

// A mute is a driver that reports the loss of a lease only when it renews it.
type mute struct{ driver.Driver }

// Acquire implements [driver.Driver].
func (m mute) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	req.OnLost = nil
	return m.Driver.Acquire(ctx, req)
}

// A stale is a driver that confirms renewals without a request to the store.
type stale struct{ driver.Driver }

// Renew implements [driver.Driver].
func (s stale) Renew(_ context.Context, due []driver.Lease) []driver.Renewal {
	all := make([]driver.Renewal, len(due))
	for i := range all {
		all[i].Start = driver.Now()
	}
	return all
}

// A control is a set-up that is wrong on purpose. Either the driver refuses to run, or the
// checker must find a violation; otherwise the other set-ups prove nothing.
type control struct {
	name   string
	of     string // the set-up
	faults string // those that reveal it
	wrong  func(*Job)
	start  func(*world)   // in place of that of the set-up, or nil
	want   []history.Fact // one of them must be found
}

var controls = []control{
	{name: "no-grace", of: "redis", faults: "store-restart", wrong: func(j *Job) { j.Store.NoGrace = true }, want: []history.Fact{history.Exclusion}},
	{name: "sentinel-loose", of: "sentinel", faults: "store-restart store-pause", wrong: func(*Job) {}, start: startSentinel(), want: []history.Fact{history.Exclusion}},
	{name: "deaf", of: "sqlite", faults: "break pause", wrong: func(j *Job) { j.Deaf = true }, want: []history.Fact{history.Untold}},
	{name: "mute", of: "redis", faults: "break", wrong: func(j *Job) { j.Mute = true }, want: []history.Fact{history.Unhinted}},
	{name: "stale", of: "sqlite", faults: "break pause", wrong: func(j *Job) { j.Stale = true }, want: []history.Fact{history.Exclusion, history.Order}},
}

// TestControls checks that each control is refused, or that one of its violations is found.
func TestControls(t *testing.T) {
	if *totalTime == 0 || *chosenSetups != "" || *onlyFaults != "" {
		t.Skip("it belongs to a run of all set-ups (make nemesis)")
	}
	for _, c := range controls {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t)
		})
	}
}

func (c control) run(t *testing.T) {
	const searchTimeout = 2 * time.Minute
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := setupNamed(t, c.of)
	s.faults = c.faults
	if c.start != nil {
		s.start = c.start
	}
	w := s.newWorld(t, dir, uint64(time.Now().UnixNano()))
	c.wrong(&w.Job)
	d, err := w.Store.Open(t.Context())
	if errors.Is(err, driver.ErrInvalid) {
		t.Logf("it is refused: %v", err)
		return
	}
	if err == nil {
		_ = d.Close() // it was never used
	}
	w.startWorkers(workers)
	rules := s.rules(w.admin.Info())
	for began := time.Now(); ; w.injectFaults(time.Second) {
		r := history.Check(w.events(), rules)
		for _, v := range r.Violations {
			if v.Allowed == "" && slices.Contains(c.want, v.Fact) {
				t.Logf("found after %v: %v", time.Since(began), v)
				return
			}
		}
		if time.Since(began) > searchTimeout {
			t.Fatalf("none of %v was found in %v: %d acquired, %d killed, faults %v", c.want, searchTimeout, r.Acquired, r.Killed, r.Faults)
		}
	}
}
