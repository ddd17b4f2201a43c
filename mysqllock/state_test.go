package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit/rows"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

// open returns a driver on a server of its own.
func open(t *testing.T) *Driver {
	t.Helper()
	conf, err := mysql.ParseDSN(mysqltest.Start(t).DSN())
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// TestRequestsDelayNobody has as many requests under way as there may be, which may all wait for
// rows that somebody has locked. Renewals, releases and heartbeats don't wait for them.
func TestRequestsDelayNobody(t *testing.T) {
	t.Parallel()
	d := open(t)
	l, err := d.Acquire(t.Context(), driver.Request{Name: "held", ID: "a", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for range maxConns {
		if _, err := d.acquiring.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
	defer cancel()
	if _, err := d.poll(ctx, []string{"held"}, nil, true); err != nil {
		t.Errorf("a poll beside requests = %v", err)
	}
	if err := d.Renew(ctx, []driver.Lease{l})[0].Err; err != nil {
		t.Errorf("Renew beside requests = %v", err)
	}
	if err := l.Release(ctx); err != nil {
		t.Errorf("Release beside requests = %v", err)
	}
}

// TestHeartbeatOfReadOnly sends a heartbeat to a server that has set read_only, as a user who may
// write all the same. It is no heartbeat, so the next one is not put off.
func TestHeartbeatOfReadOnly(t *testing.T) {
	t.Parallel()
	d := open(t)
	if err := d.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.db.Exec("SET GLOBAL read_only = 1"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.processes.ensureHeartbeat(t.Context(), d); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("a heartbeat = %v, want ErrUnavailable", err)
		}
	}
}

// TestStallKeepsIdleConnections has a server that does not answer for as long as polls and signals
// wait. A full server would not replace the idle connections, which renewals need.
func TestStallKeepsIdleConnections(t *testing.T) {
	t.Parallel()
	d := open(t)
	for inTime := false; !inTime; {
		before, began := d.db.Stats().MaxIdleClosed, time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), rows.HeartbeatTimeout)
		defer cancel()
		err := d.runOnce(ctx, func(ctx context.Context, _ *sql.Conn) error {
			if idle, err := d.db.Conn(t.Context()); err != nil || idle.Close() != nil {
				t.Errorf("Conn = %v", err)
			}
			<-ctx.Done()
			return ctx.Err()
		})
		closed := d.db.Stats().MaxIdleClosed - before
		inTime = time.Since(began) <= maxLockWait+time.Second
		if err == nil || inTime && closed > 0 {
			t.Errorf("a short stall = %v, and has closed %d idle connections, want an error and none", err, closed)
		}
	}
}

// TestSaveAfterRemoval has the server execute the write of an attempt after the removal of that
// attempt, which found nothing. It must grant nothing, whether or not the lock had a row.
func TestSaveAfterRemoval(t *testing.T) {
	t.Parallel()
	d := open(t)
	for _, what := range []string{"without a row", "with a row"} {
		s, err := d.readCommitted(t.Context(), "late")
		if err != nil {
			t.Fatal(err)
		}
		if want := what == "with a row"; s.exists != want {
			t.Fatalf("exists = %v, want %v", s.exists, want)
		}
		s.grant(entry{ID: "late", Nonce: "a-1", Tokens: 1}, time.Minute.Microseconds())
		if err := d.removeEntry(t.Context(), "late", "a-1"); err != nil {
			t.Fatal(err)
		}
		if res, err := d.save(t.Context(), s); err != nil || res.rows != 0 {
			t.Errorf("%s, the late write changed %d rows, %v; want none", what, res.rows, err)
		}
		if st, err := d.Status(t.Context(), "late"); err != nil || len(st.Holders) != 0 {
			t.Errorf("%s, Status = %+v, %v; want no holder", what, st, err)
		}
	}
	floor := time.Now().Add(time.Hour).UnixMicro() // of a row that was pruned
	if _, err := d.db.Exec("UPDATE snib_locks SET token = ? WHERE name = ''", floor); err != nil {
		t.Fatal(err)
	}
	if err := d.removeEntry(t.Context(), "pruned", "a-1"); err != nil {
		t.Fatal(err)
	}
	if token, err := d.Token(t.Context(), "pruned"); err != nil || token <= uint64(floor) {
		t.Errorf("the token after a removal = %d, %v; want more than %d", token, err, floor)
	}
}

// TestWritable evaluates the condition for the values that read_only has before MariaDB 12.0, and
// since. No statement asks for read_only in another way.
func TestWritable(t *testing.T) {
	t.Parallel()
	d := open(t)
	condition := newStatements("t").Writable
	for value, want := range map[string]bool{
		"0": true, "1": false, "'OFF'": true, "'ON'": false, "'NO_LOCK'": false, "'NO_LOCK_NO_ADMIN'": false,
	} {
		var got bool
		text := strings.ReplaceAll("SELECT "+condition, "@@global.read_only", value)
		if err := d.db.QueryRow(text).Scan(&got); err != nil || got != want {
			t.Errorf("%s = %v, %v; want %v", text, got, err, want)
		}
	}
	for field, text := range reflect.ValueOf(newStatements("t")).Fields() {
		if strings.Contains(strings.ReplaceAll(text.String(), condition, ""), "read_only") {
			t.Errorf("%s asks for read_only, and not by {writable}", field.Name)
		}
	}
}

// TestRecallAllowsForDrift judges holders by a row that is 9.9 s old. The one that ended within 1 %
// of that may not have ended by the server's clock: it keeps others out, also beside a hold that is
// released, and can't be renewed or released any more.
func TestRecallAllowsForDrift(t *testing.T) {
	holders := []entry{{ID: "over", Until: 9_700_000}, {ID: "released", Nonce: "a-1", Until: 20_000_000},
		{ID: "perhaps over", Nonce: "b-1", Until: 9_850_000}}
	var s *state
	for at := driver.Now(); s == nil || driver.Now().Sub(at) > 40*time.Millisecond; { // until it was in time
		at = driver.Now()
		s = &state{State: rows.State{Holders: slices.Clone(holders)}, at: at.Add(-9900 * time.Millisecond)}
		s = (&rowMutex{last: s}).recall()
	}
	s.release(&s.Holders[0])
	if len(s.Holders) != 1 || s.Holders[0].ID != "perhaps over" {
		t.Fatalf("after a release there are %+v, want the holder that is perhaps over", s.Holders)
	}
	if h := s.holder(&lease{Req: driver.Request{ID: "perhaps over"}}); h != nil {
		t.Errorf("holder of a lease that is perhaps over = %+v, want nil", h)
	}
}

// TestMinHoldOfRecalledRow grants a lock by a row whose time is known to within 100 ms, and
// releases it by one that is known to within 1 s. MinHold counts from the grant's start at least.
func TestMinHoldOfRecalledRow(t *testing.T) {
	recalled := func(s state, within time.Duration) *state {
		s.at = driver.Now()
		s.start = s.at.Add(-within)
		return (&rowMutex{last: &s}).recall()
	}
	s := recalled(state{State: rows.State{Now: 50_000_000}}, 100*time.Millisecond)
	h := *s.grant(entry{ID: "a", MinHold: 3_000_000}, 10_000_000)
	if h.Since < s.latest {
		t.Errorf("a hold is %v old before its start", rows.Between(h.Since, s.latest))
	}
	s = recalled(state{State: rows.State{Now: h.Since - 500_000, Holders: []entry{h}}}, time.Second)
	s.release(&s.Holders[0])
	if got := s.Holders[0].Until; got < h.Since+h.MinHold {
		t.Errorf("a hold is kept for %v from its start, want %v", rows.Between(h.Since, got), rows.Between(0, h.MinHold))
	}
}

// TestSignalToHolder has one of two waiters leave before their holder has seen that others wait. It
// is still told, once, unless nobody waits any more or the lock can be granted. A waiter of its
// driver that is granted before the driver has seen the signal tells the holder, too.
func TestSignalToHolder(t *testing.T) {
	t.Parallel()
	d, wanted := open(t), make(chan struct{})
	req := driver.Request{Name: "held", ID: "a", TTL: time.Minute, Tokens: 2, OnWanted: func() { close(wanted) }}
	if _, err := d.Acquire(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	id := d.rows.ID
	h := entry{Nonce: id + "-1", Tell: true, Until: 1}
	for _, tt := range []struct {
		name string
		do   func(s *state)
		want string
	}{
		{"OneLeft", func(s *state) { s.remove("c-1"); s.signalFirst() }, id},
		{"BothLeft", func(s *state) { s.remove("b-1"); s.remove("c-1"); s.signalFirst() }, ""},
		{"Seen", func(s *state) { d.clearSignal(s) }, ""},
		{"Released", func(s *state) { s.release(&s.Holders[0]) }, "b"},
		{"Granted", func(s *state) { s.remove(h.Nonce); s.signaled = "b"; s.grant(s.Waiters[0], 1) }, ""},
	} {
		s := &state{State: rows.State{Name: "held", Holders: []entry{h},
			Waiters: []entry{{Nonce: "b-1", Tell: true}, {Nonce: "c-1"}}}, signaled: id}
		if tt.do(s); s.signaled != tt.want {
			t.Errorf("%s: the row signals %q, want %q", tt.name, s.signaled, tt.want)
		}
	}
	a := &rows.Attempt{Req: driver.Request{Name: "held", TTL: time.Minute, Slots: 2}, Entry: entry{Nonce: id + "-2", Slots: 2}}
	s := &state{State: rows.State{Name: "held", Slots: 2, Holders: []entry{{Nonce: id + "-1", Tell: true, Slots: 2}},
		Waiters: []entry{a.Entry, {Nonce: "c-1", Slots: 2}}}, signaled: id, recalled: true}
	if h, _, err := d.decide(t.Context(), a, s); h == nil || s.signaled != "" {
		t.Errorf("the waiter gets %v, %v, and the row signals %q", h, err, s.signaled)
	}
	select {
	case <-wanted:
	default:
		t.Error("the signal was cleared, and its holder was not told")
	}
}

// TestOthersAreBounded has ever more processes wait.
func TestOthersAreBounded(t *testing.T) {
	w := processes{others: map[string]processRow{}}
	for i := range rune(2 * maxOthers) {
		name := processPrefix + string(i)
		w.noteLocked([]string{name}, map[string]int64{name: 1})
	}
	if n := len(w.others); n > maxOthers {
		t.Errorf("it remembers %d processes, want %d at most", n, maxOthers)
	}
}
