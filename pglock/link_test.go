package pglock

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

// TestSetUp checks that no setting of the user or the server ends a session, and so frees its
// locks, before its holders are told: the server waits for the whole timeout.
func TestSetUp(t *testing.T) {
	t.Parallel()
	conf := poolOf(t, pgtest.Start(t).URL()).Config().ConnConfig
	for _, name := range []string{"statement_timeout", "lock_timeout", "idle_session_timeout", "tcp_user_timeout"} {
		conf.RuntimeParams[name] = "1h"
	}
	for _, seconds := range []float64{1, 4, 7, 10.5, 15, 60} {
		timeout := time.Duration(seconds * float64(time.Second))
		conn, err := pgx.ConnectConfig(t.Context(), conf)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), "BEGIN"); err != nil { // else a pause of the machine ends the session
			t.Fatal(err)
		}
		s := &Session{conf: config{sessionTimeout: timeout}, sql: newSessionStatements()}
		if err := s.setUp(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		var limits string
		var silent, probed int
		err = conn.QueryRow(t.Context(), `SELECT concat_ws(' ', current_setting('statement_timeout'),
			current_setting('lock_timeout'), current_setting('tcp_user_timeout')), idle.setting::int,
			(current_setting('tcp_keepalives_idle')::int + current_setting('tcp_keepalives_interval')::int *
			current_setting('tcp_keepalives_count')::int) * 1000
			FROM pg_settings idle WHERE idle.name = 'idle_session_timeout'`).Scan(&limits, &silent, &probed)
		if limits != "0 0 0" || silent != int(timeout.Milliseconds()) || probed < silent || err != nil {
			t.Errorf("Timeout(%v): the limits are %s, and a silent session ends after %d ms, or %d ms if its host is gone (%v); "+
				"want no limits, and not before the timeout", timeout, limits, silent, probed, err)
		}
		hangUp(conn)
	}
}

// TestOldServer opens a session on a server that knows no limit for idle sessions. It is refused:
// without one, the locks of a host that has vanished stay for as long as TCP keeps its connection.
func TestOldServer(t *testing.T) {
	t.Parallel()
	d, err := NewSession(poolOf(t, pgtest.Start(t).URL()))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.sql.SessionSetUp = strings.ReplaceAll(d.sql.SessionSetUp, "idle_session_timeout", "idle_session_timeour")
	l, err := d.Acquire(t.Context(), driver.Request{Name: "job", ID: "id", TTL: time.Minute})
	if l != nil || !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Acquire = %v, %v; want ErrInvalid", l, err)
	}
}

// TestFullNotifyQueue: it is an outage, but not all that exceeds a limit is one.
func TestFullNotifyQueue(t *testing.T) {
	for routine, want := range map[string]bool{"PreCommit_Notify": true, "_bt_check_third_page": false} {
		err := explain(&pgconn.PgError{Code: "54000", Routine: routine})
		if got := errors.Is(err, driver.ErrUnavailable); got != want || errors.Is(err, driver.ErrFull) {
			t.Errorf("%s: %v is ErrUnavailable: %v, want %v, and not ErrFull", routine, err, got, want)
		}
	}
}

// poolOf returns a pool that is closed at the end of the test.
func poolOf(t *testing.T, url string) *pgxpool.Pool {
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// TestLockedBefore polls for a row that was locked at a heartbeat for earlier waiters: nothing is
// known of it now.
func TestLockedBefore(t *testing.T) {
	d, err := New(poolOf(t, pgtest.URL("127.0.0.1:1"))) // nobody listens there
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.locked, d.lockedAt = map[string]bool{"a": true}, time.Now().Add(-time.Hour)
	if found, err := d.poll(t.Context(), []string{"a"}, nil, false); len(found) > 0 {
		t.Errorf("poll = %v, %v; want no row", found, err)
	}
}

// TestAnswers gives a call one answer after another. Each leads to what the call asks for next,
// to its result, or to the end of the session.
func TestAnswers(t *testing.T) {
	const ago = 5 * time.Second // which is more than a tenth of the timeout
	failed := &pgconn.PgError{Code: queryCanceled}
	yes, no, cancelled := answer{ok: true}, answer{}, answer{err: failed}
	tests := []struct {
		name    string
		ask     string
		state   int           // of the lease, before the first answer
		waited  time.Duration // since the call was sent
		answers []answer
		next    string // what the call asks for after them
		err     error  // its result, if it asks for nothing
		ends    error  // why the session ends
		want    int    // the state after them
	}{
		{name: "Free", ask: askTry, answers: []answer{yes}, want: leaseHeld},
		{name: "Taken", ask: askTry, answers: []answer{no}, err: driver.ErrHeld, want: leaseNew},
		{name: "GivenUp", ask: askTry, state: leaseLeaving, answers: []answer{yes}, next: askFree, want: leaseLeaving},
		{name: "GivenUpAndFreed", ask: askTry, state: leaseLeaving, answers: []answer{yes, yes}, want: leaseFreed},
		{name: "Failed", ask: askTry, answers: []answer{cancelled}, next: askFree, want: leaseNew},
		{name: "FailedAndFreed", ask: askTry, answers: []answer{cancelled, no}, err: failed, want: leaseNew},
		{name: "ShortWait", ask: askWait, answers: []answer{yes}, want: leaseHeld},
		{name: "LongWait", ask: askWait, waited: ago, answers: []answer{yes}, next: askPing, want: leaseNew},
		{name: "LongWaitConfirmed", ask: askWait, waited: ago, answers: []answer{yes, yes}, want: leaseHeld},
		{name: "LongWaitNotConfirmed", ask: askWait, waited: ago, answers: []answer{yes, cancelled}, next: askFree, want: leaseNew},
		{name: "Released", ask: askFree, state: leaseLeaving, answers: []answer{yes}, want: leaseFreed},
		{name: "ReleaseRepeated", ask: askFree, state: leaseLeaving, answers: []answer{cancelled, cancelled, yes}, want: leaseFreed},
		{name: "NotReleased", ask: askFree, state: leaseLeaving, answers: []answer{cancelled, cancelled, cancelled},
			err: errSessionOver, ends: failed, want: leaseLost},
		{name: "Demoted", ask: askTry, answers: []answer{{ok: true, refusesWrites: true}}, err: errSessionOver, ends: errDemoted, want: leaseLost},
		{name: "OtherServer", ask: askTry, answers: []answer{{ok: true, pid: 7}}, err: errSessionOver, ends: pooledError{actual: 7}, want: leaseLost},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &Session{conf: config{sessionTimeout: 15 * time.Second}, life: driverkit.NewLifecycle()}
			l := unconnected(s)
			h := &sessionLease{s: s, key: 1, state: tt.state}
			c := l.request(tt.ask, h)
			c.sent = c.sent.Add(-tt.waited)
			var ended error
			for _, a := range tt.answers {
				if ended = l.onAnswer(a); ended != nil {
					s.end(l, ended)
				}
			}
			if !errors.Is(ended, tt.ends) || ended != nil && tt.ends == nil {
				t.Errorf("the session ends with %v, want %v", ended, tt.ends)
			}
			if len(l.calls) > 0 != (tt.next != "") || len(l.calls) > 0 && c.ask != tt.next {
				t.Errorf("%d calls, the last asks for %q; want %q", len(l.calls), c.ask, tt.next)
			}
			if tt.next == "" && (!errors.Is(c.err, tt.err) || c.err != nil && tt.err == nil) {
				t.Errorf("the result is %v, want %v", c.err, tt.err)
			}
			if h.state != tt.want {
				t.Errorf("the state of the lease is %d, want %d", h.state, tt.want)
			}
			if _, held := l.held[1]; held != (tt.next != "" || tt.want == leaseHeld || tt.want == leaseLost) {
				t.Errorf("the session has the lock: %v", held)
			}
		})
	}
}

// TestMinHoldAfterSlowAnswer has an answer take a second. The server may have granted the lock at
// its end, so MinHold counts from then.
func TestMinHoldAfterSlowAnswer(t *testing.T) {
	for _, ask := range []string{askTry, askWait} {
		synctest.Test(t, func(t *testing.T) {
			s := &Session{conf: config{sessionTimeout: time.Minute}, life: driverkit.NewLifecycle()}
			l := unconnected(s)
			h := &sessionLease{s: s, key: 1, req: driver.Request{MinHold: 2 * time.Second}}
			l.request(ask, h)
			time.Sleep(time.Second)
			_ = l.onAnswer(answer{ok: true})
			h.free()
			_ = l.onAnswer(answer{err: &pgconn.PgError{Code: queryCanceled}})
			again := h.free()
			_ = l.onAnswer(answer{ok: true}) // it was held until then
			if again.err != nil {
				t.Errorf("%s: a release whose first ping has failed = %v", ask, again.err)
			}
			for want, pause := range []time.Duration{h.req.MinHold - 1, 1} {
				time.Sleep(pause)
				synctest.Wait()
				s.mu.Lock()
				if len(l.calls) != want {
					t.Errorf("%s: %dns before the end of MinHold, the session has %d calls, want %d", ask, 1-want, len(l.calls), want)
				}
				s.mu.Unlock()
			}
		})
	}
}

// TestReleaseAtEnd ends a session before or after its holder asks it to free the lock. What was
// done by then was guarded, unless the answer is that another server may have granted the lock.
func TestReleaseAtEnd(t *testing.T) {
	for _, tt := range []struct {
		asked   bool
		minHold time.Duration
		cause   error // of the end
		want    error
		kind    driver.HolderKind // that Status shows before the end
	}{
		{false, 0, errSilent, driver.ErrLost, driver.KindProcess},
		{true, 0, errSilent, driver.ErrUnavailable, driver.KindProcess},
		{true, 0, errDemoted, driver.ErrLost, driver.KindProcess},
		{true, 0, pooledError{actual: 7}, driver.ErrLost, driver.KindProcess},
		{true, time.Hour, errSilent, driver.ErrUnavailable, driver.KindKept},
		{true, time.Hour, errDemoted, driver.ErrLost, driver.KindKept},
	} {
		s := &Session{life: driverkit.NewLifecycle()}
		l := unconnected(s)
		h := &sessionLease{s: s, link: l, key: 1, state: leaseHeld, grantedAt: driver.Now(),
			req: driver.Request{MinHold: tt.minHold}}
		if l.held[1] = h; tt.asked {
			h.free()
		}
		if kind := s.describe(0, 1, "").Holder.Kind; kind != tt.kind {
			t.Errorf("%+v: Status shows it as %v", tt, kind)
		}
		s.end(l, tt.cause)
		for range 2 {
			err := h.Release(t.Context())
			if !errors.Is(err, tt.want) || errors.Is(err, driver.ErrLost) != errors.Is(tt.want, driver.ErrLost) {
				t.Errorf("%+v: Release = %v", tt, err)
			}
		}
	}
}

// unconnected adds a link without a connection to a session.
func unconnected(s *Session) *link {
	l := &link{s: s, conn: &pgconn.PgConn{}, wake: make(chan struct{}, 1), over: make(chan struct{}),
		held: map[int64]*sessionLease{}}
	s.links = append(s.links, l)
	return l
}

// TestWaitWithoutConnection has a request wait that gets no connection: others have all of the
// process, or the server takes no new one. It finds the lock taken each time, and asks ever more
// seldom.
func TestWaitWithoutConnection(t *testing.T) {
	refusing := poolOf(t, pgtest.URL("127.0.0.1:1")).Config()
	refusing.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { return io.EOF }
	pool, err := pgxpool.NewWithConfig(t.Context(), refusing)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	conf := config{key: NameKey}
	for _, tt := range []struct {
		links int
		want  error
		pause time.Duration // the least in the long run
	}{{maxLinks, driver.ErrFull, 4 * time.Second}, {1, driver.ErrUnavailable, time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			s := &Session{pool: pool, conf: conf, life: driverkit.NewLifecycle(), opening: make(chan struct{}, 1)}
			first := unconnected(s)
			for len(s.links) < tt.links {
				unconnected(s).waits = true
			}
			tries, ended := 0, make(chan struct{})
			go func() {
				defer close(ended)
				for range first.wake {
					tries++
					_ = first.onAnswer(answer{})
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if _, err := s.Acquire(ctx, driver.Request{Name: "job", ID: "id", TTL: time.Minute}); !errors.Is(err, tt.want) {
				t.Errorf("Acquire = %v, want %v", err, tt.want)
			}
			close(first.wake)
			<-ended
			if most := 10 + int(time.Hour/tt.pause); tries > most {
				t.Errorf("with %d connections it asked %d times in an hour, want at most %d", tt.links, tries, most)
			}
		})
	}
}

// TestKeys checks the test vectors of the wire format.
func TestKeys(t *testing.T) {
	for name, want := range map[string]int64{"job": -7504860721436903378, "日本語": -5327152105618399071} {
		if got := NameKey(name); got != want {
			t.Errorf("NameKey(%q) = %d, want %d", name, got, want)
		}
	}
}
