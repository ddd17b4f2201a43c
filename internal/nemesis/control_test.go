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
	"github.com/sniblock/snib/internal/nemesis/history"
)

// mute is a driver that says that a lease was lost only when it is to be renewed.
type mute struct{ inspected }

// Acquire implements [driver.Driver].
func (m mute) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	req.OnLost = nil
	return m.inspected.Acquire(ctx, req)
}

// stale is a driver that confirms leases without asking the store.
type stale struct{ inspected }

// Renew implements [driver.Driver].
func (s stale) Renew(_ context.Context, due []driver.Lease) []driver.Renewal {
	all := make([]driver.Renewal, len(due))
	for i := range all {
		all[i].Start = driver.Now()
	}
	return all
}

// A control is a set-up that is wrong on purpose. If no violation is found there, the others prove nothing, unless the driver refuses to run.
type control struct {
	name   string
	start  func(*world)
	wrong  func(*Job)
	faults []string // that show it
	rows   []row
	want   []history.Fact // one of them must be found
}

var controls = []control{
	{
		name: "no-grace", start: startRedis(), wrong: func(j *Job) { j.Store.NoGrace = true }, faults: []string{"kill-server"}, rows: redisRows,
		want: []history.Fact{history.Exclusion},
	},
	{
		name: "sentinel-loose", start: startSentinel(), wrong: func(*Job) {}, faults: []string{"kill-server", "stop-server"}, rows: sentinelRows,
		want: []history.Fact{history.Exclusion},
	},
	{
		name: "deaf", start: startSQLite, wrong: func(j *Job) { j.Deaf = true }, faults: []string{"break", history.StopWorker}, rows: sqliteRows,
		want: []history.Fact{history.Untold},
	},
	{
		name: "mute", start: startRedis(), wrong: func(j *Job) { j.Mute = true }, faults: []string{"break"}, rows: redisRows,
		want: []history.Fact{history.Unhinted},
	},
	{
		name: "stale", start: startSQLite, wrong: func(j *Job) { j.Stale = true }, faults: []string{"break", history.StopWorker}, rows: sqliteRows,
		want: []history.Fact{history.Exclusion, history.Order},
	},
}

// TestControls finds what is wrong in each control.
func TestControls(t *testing.T) {
	if *total == 0 || *chosen != "" || *only != "" {
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
	const patience = 2 * time.Minute
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, dir, uint64(time.Now().UnixNano()))
	c.start(w)
	c.wrong(&w.Job)
	d, err := w.Store.open(t.Context())
	if errors.Is(err, driver.ErrInvalid) {
		t.Logf("it is refused: %v", err)
		return
	}
	if err == nil {
		_ = d.Close() // it was never used
	}
	w.keep(c.faults)
	w.begin(workers)
	rules := setup{rows: c.rows}.rules(w.admin.Info())
	for began := time.Now(); ; w.torment(time.Second) {
		for _, v := range history.Check(w.events(), rules).Violations {
			if v.Allowed == "" && slices.Contains(c.want, v.Fact) {
				t.Logf("found after %v: %v", time.Since(began), v)
				return
			}
		}
		if time.Since(began) > patience {
			t.Fatalf("none of %v was found in %v", c.want, patience)
		}
	}
}
