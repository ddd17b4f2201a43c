package snib_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/memlock"
)

// An event is one event of any kind, for tests that look at several kinds.
type event struct {
	snib.Event
	Context context.Context
	Local   bool
	Joined  bool
	Waited  time.Duration
	Held    time.Duration
	Took    time.Duration
	TTL     time.Duration
	Margin  time.Duration
	Left    time.Duration
	Queued  int
	Loss    snib.Loss
	Err     error
}

// traceAll returns a Trace that calls record with the name and the fields of each event.
func traceAll(record func(what string, e event)) *snib.Trace {
	return &snib.Trace{
		WaitStarted: func(e snib.WaitStartedEvent) { record("started", event{Event: e.Event, Context: e.Context}) },
		WaitEnded: func(e snib.WaitEndedEvent) {
			record("ended", event{Event: e.Event, Context: e.Context, Waited: e.Waited, Local: e.Local, Joined: e.Joined,
				Err: e.Err})
		},
		Renewed: func(e snib.RenewedEvent) {
			record("renewed", event{Event: e.Event, Took: e.Took, TTL: e.TTL, Margin: e.Margin, Left: e.Left, Err: e.Err})
		},
		Lost: func(e snib.LostEvent) { record("lost", event{Event: e.Event, Held: e.Held, Loss: e.Loss, Err: e.Err}) },
		Released: func(e snib.ReleasedEvent) {
			record("released", event{Event: e.Event, Held: e.Held, Local: e.Local, Queued: e.Queued, Err: e.Err})
		},
	}
}

// A recorder keeps the events that a Trace reports, by hook.
type recorder struct {
	mu     sync.Mutex
	events map[string][]event
}

func (r *recorder) trace() *snib.Trace {
	r.events = map[string][]event{}
	return traceAll(func(what string, e event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events[what] = append(r.events[what], e)
	})
}

func (r *recorder) eventsOf(what string) []event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events[what])
}

func TestTraceAndLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var events []string
		trace := traceAll(func(what string, e event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, fmt.Sprintf("%s %s %v %v", what, e.Name, e.Waited+e.Held, e.Err))
		})
		store := new(memlock.Store)
		l := open(t, store.Open(), snib.Tracing(trace), snib.MaxHold(40*time.Second))
		lock := acquire(t, l, "a")
		time.Sleep(time.Second)
		release(t, lock)
		other := acquire(t, open(t, store.Open()), "a")
		_, err := l.TryAcquire(t.Context(), "a")
		wantErr(t, "TryAcquire", err, snib.ErrHeld)
		release(t, other)
		_ = acquire(t, l, "b")
		time.Sleep(40 * time.Second)
		synctest.Wait()
		want := []string{
			"started a 0s <nil>", "ended a 0s <nil>", "released a 1s <nil>",
			"started a 0s <nil>", `ended a 0s snib: acquire "a" (memory): the lock is held`,
			"started b 0s <nil>", "ended b 0s <nil>",
			"renewed b 0s <nil>", "renewed b 0s <nil>", "renewed b 0s <nil>", "renewed b 0s <nil>",
			"lost b 40s the lock was lost: MaxHold of 40s is over",
		}
		mu.Lock()
		defer mu.Unlock()
		if got, want := strings.Join(events, "\n"), strings.Join(want, "\n"); got != want {
			t.Errorf("told:\n%s\nwant:\n%s", got, want)
		}
	})
}

// A metric of current holds can count up for each WaitEnded without Err and Joined,
// and down for each Released or Lost.
func TestTraceTellsEachHoldOnce(t *testing.T) {
	type step = func(t *testing.T, l *snib.Locker) (release func())
	tests := []struct {
		name          string
		run           step
		locks, joined int
		ends, queued  int
	}{
		{name: "Reentrant", locks: 2, joined: 1, ends: 1, run: func(t *testing.T, l *snib.Locker) func() {
			l = l.With(snib.Reentrant())
			outer := acquire(t, l, "a")
			inner, err := l.Acquire(outer.Context(), "a")
			wantErr(t, "Acquire again", err, nil)
			return func() { release(t, inner); release(t, outer) }
		}},
		{name: "HandOver", locks: 2, ends: 2, queued: 1, run: func(t *testing.T, l *snib.Locker) func() {
			one := acquire(t, l, "a")
			done := make(chan struct{})
			go func() {
				defer close(done)
				two, err := l.Acquire(t.Context(), "a")
				if err == nil {
					err = two.Release()
				}
				if err != nil {
					t.Errorf("the second hold: %v", err)
				}
			}()
			synctest.Wait()
			return func() { release(t, one); <-done }
		}},
	}
	for _, tt := range tests {
		bubble(t, tt.name, func(t *testing.T) {
			var r recorder
			tt.run(t, open(t, memlock.New(), snib.Tracing(r.trace())))()
			synctest.Wait()
			count := func(what string, matches func(event) bool) (n int) {
				for _, e := range r.eventsOf(what) {
					if matches(e) {
						n++
					}
				}
				return n
			}
			all := func(event) bool { return true }
			joined := func(e event) bool { return e.Joined }
			queued := func(e event) bool { return e.Queued == 1 }
			got := []int{
				count("ended", all), count("ended", joined), count("released", all), count("released", queued),
			}
			if want := []int{tt.locks, tt.joined, tt.ends, tt.queued}; !slices.Equal(got, want) {
				t.Errorf("ended, of these joined, released, of these with one in the queue = %v, want %v", got, want)
			}
		})
	}
}

// slowContext is a context whose Err takes a minute once slow is closed.
type slowContext struct {
	context.Context
	slow chan struct{}
}

func (c *slowContext) Err() error {
	select {
	case <-c.slow:
		time.Sleep(time.Minute) // fake time: long enough for the hold to be lost
	default:
	}
	return c.Context.Err()
}

// A hold that was handed to a waiter, and was over before the waiter
// accepted it, is not reported.
func TestTraceIsNotToldOfHoldsThatNobodyHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		d := newSpy(new(memlock.Store))
		var others recorder
		l := open(t, d, snib.Tracing(others.trace()))
		first, second := acquire(t, l, "a"), make(chan *snib.Lock)
		go func() {
			lock, err := l.Acquire(t.Context(), "a")
			if err != nil {
				t.Errorf("the second Acquire: %v", err)
			}
			second <- lock
		}()
		synctest.Wait()
		ctx := &slowContext{t.Context(), make(chan struct{})}
		failed := make(chan error)
		go func() {
			_, err := l.With(snib.Tracing(r.trace()), snib.MaxHold(time.Second)).Acquire(ctx, "a")
			failed <- err
		}()
		synctest.Wait()
		release(t, first) // the second acquires from the store, with a token for the third
		lock := <-second
		close(ctx.slow)
		release(t, lock)
		wantErr(t, "the third Acquire", <-failed, nil) // it asked the store itself then
		if released := others.eventsOf("released"); len(released) != 2 || !released[1].Local {
			t.Fatalf("the third hold was not handed over: %+v", released)
		}
		synctest.Wait()
		if lost, released := r.eventsOf("lost"), r.eventsOf("released"); len(lost)+len(released) > 0 {
			t.Errorf("the trace was told of the end of a hold that it was not told of: lost %+v, released %+v", lost, released)
		}
	})
}

func TestTraceTellsTheKindOfLoss(t *testing.T) {
	tests := []struct {
		want snib.Loss
		opts []snib.Option
		lose func(*spy, *snib.Locker, *snib.Lock) error
	}{
		{want: snib.LossMaxHold, opts: []snib.Option{snib.MaxHold(time.Second)}},
		{want: snib.LossExpired,
			lose: func(d *spy, _ *snib.Locker, _ *snib.Lock) error { d.renew = unreachable; return nil }},
		{want: snib.LossRefused, lose: func(d *spy, _ *snib.Locker, lock *snib.Lock) error {
			return d.Driver.Break(context.Background(), "a", lock.ID())
		}},
		{want: snib.LossClosed, lose: func(_ *spy, l *snib.Locker, _ *snib.Lock) error { return l.Close() }},
	}
	for _, tt := range tests {
		bubble(t, string(tt.want), func(t *testing.T) {
			var r recorder
			d := newSpy(new(memlock.Store))
			l := open(t, d, append(tt.opts, snib.Tracing(r.trace()))...)
			lock := acquire(t, l, "a")
			if tt.lose != nil {
				wantErr(t, "lose it", tt.lose(d, l, lock), nil)
			}
			<-lock.Lost()
			synctest.Wait()
			if lost := r.eventsOf("lost"); len(lost) != 1 || lost[0].Loss != tt.want {
				t.Errorf("told %+v, want one loss by %q", lost, tt.want)
			}
			if err := lock.Release(); !errors.Is(err, snib.ErrLost) {
				t.Errorf("Release = %v, want %v", err, snib.ErrLost)
			}
		})
	}
}

func TestTraceTellsTheMarginOfARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		d := newSpy(new(memlock.Store))
		d.renew = func(_ context.Context, _ []driver.Lease, send func() []driver.Renewal) []driver.Renewal {
			time.Sleep(5 * time.Second)
			return send()
		}
		lock := acquire(t, open(t, d, snib.TTL(ttl), snib.Tracing(r.trace())), "a")
		time.Sleep(ttl/3 + 6*time.Second)
		renewed := r.eventsOf("renewed")
		if len(renewed) != 1 {
			t.Fatalf("told of %d renewals, want 1: %+v", len(renewed), renewed)
		}
		// The renewal is sent after a third of the TTL, or up to 2 s
		// earlier, and answered 5 s later.
		e := renewed[0]
		if e.Margin < ttl*2/3-6*time.Second || e.Margin > ttl*2/3-3*time.Second || e.TTL != ttl || e.Left <= e.Margin {
			t.Errorf("margin %v of %v, then %v left; want about 15s of 30s, and more left", e.Margin, e.TTL, e.Left)
		}
		release(t, lock)
	})
}

// The end that MaxHold or NoRenewal sets for a hold makes no renewal late.
func TestMarginIsOfTheLease(t *testing.T) {
	for name, opt := range map[string]snib.Option{"MaxHold": snib.MaxHold(ttl), "NoRenewal": snib.NoRenewal()} {
		bubble(t, name, func(t *testing.T) {
			const session = ttl / 3
			var r recorder
			d := newSpy(new(memlock.Store))
			endlessSession(d, session)
			lock := acquire(t, open(t, d, opt, snib.Tracing(r.trace())), "a")
			<-lock.Lost()
			synctest.Wait()
			renewed := r.eventsOf("renewed")
			if len(renewed) < 6 {
				t.Errorf("told of %d renewals, want one every third of %v", len(renewed), session)
			}
			for _, e := range renewed {
				if e.Margin < session/2 || e.TTL != session {
					t.Errorf("margin %v of %v; want about two thirds", e.Margin, e.TTL)
				}
			}
			wantErr(t, "Release", lock.Release(), snib.ErrLost)
		})
	}
}

func TestTraceGetsTheContextOfAcquire(t *testing.T) {
	type key struct{}
	var r recorder
	l := open(t, memlock.New(), snib.Tracing(r.trace()))
	lock, err := l.Acquire(context.WithValue(t.Context(), key{}, "here"), "a")
	wantErr(t, "Acquire", err, nil)
	release(t, lock)
	for _, what := range []string{"started", "ended"} {
		if told := r.eventsOf(what); len(told) != 1 || told[0].Context == nil || told[0].Context.Value(key{}) != "here" {
			t.Errorf("%s: %+v, want the context that Acquire was called with", what, told)
		}
	}
}

// Log watchers depend on these messages and keys.
func TestLogKeys(t *testing.T) {
	var log lockedBuffer
	d := newSpy(new(memlock.Store))
	l := open(t, d, snib.TTL(2*time.Second),
		snib.Logging(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))

	until := func(message string) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !strings.Contains(log.String(), `"msg":"`+message); {
			if time.Now().After(deadline) {
				t.Fatalf("no line %q in\n%s", message, log.String())
			}
			time.Sleep(time.Millisecond) // let the keeper run
		}
	}
	fails := true
	d.acquire = func(_ context.Context, _ driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
		if fails {
			fails = false
			return nil, driver.ErrUnavailable
		}
		return send()
	}
	renewals := 0 // the first one fails
	d.renew = func(ctx context.Context, due []driver.Lease, send func() []driver.Renewal) []driver.Renewal {
		if renewals++; renewals == 1 {
			return unreachable(ctx, due, send)
		}
		return send()
	}
	release(t, acquire(t, l, "a"))
	_, err := l.Acquire(t.Context(), "")
	wantErr(t, "Acquire without a name", err, snib.ErrInvalid)
	lock := acquire(t, l, "broken")
	until("lock renewed")
	if err := d.Driver.Break(t.Context(), "broken", lock.ID()); err != nil {
		t.Fatal(err)
	}
	until("lock lost")
	d.acquire = func(_ context.Context, _ driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
		l, err := send()
		return &oldTokenLease{l, lock.Token()}, err
	}
	release(t, acquire(t, l, "broken"))

	got := map[string]string{}
	for line := range strings.Lines(log.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		message, level := fields["msg"].(string), fields["level"].(string)
		for _, every := range []string{"time", "level", "msg"} {
			delete(fields, every)
		}
		if message != "lock lost" {
			delete(fields, "err") // other lines may have none
		}
		if strings.Contains(line, lock.ID()) {
			t.Errorf("the id, with which the lock can be released, stands in the log: %s", line)
		}
		if got[message] != "" {
			continue // a loss may be a renewal that failed, too
		}
		got[message] = level + " | " + message + " | " + strings.Join(slices.Sorted(maps.Keys(fields)), ", ")
	}
	page := "# Lines of the log\n\nMade by `UPDATE=1 go test -run TestLogKeys .`. [Metrics, alerts and logs](../../metrics.md#logs) explains them.\n\n" +
		"| level | message | keys |\n| --- | --- | --- |\n"
	for _, row := range slices.Sorted(maps.Values(got)) {
		page += "| " + row + " |\n"
	}
	const name = "docs/reference/generated/log.md"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(name, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(name); err != nil || strings.ReplaceAll(string(want), "\r\n", "\n") != page {
		t.Errorf("%s is not what is logged (%v); the page is\n%s", name, err, page)
	}
}

// A failure of the store is a warning. An act of a caller or of another holder is not.
func TestLogLevels(t *testing.T) {
	tests := []struct {
		name, message, level string
		run                  func(*testing.T, *fault.Driver, *snib.Locker)
	}{
		{"Held", "acquire failed", "DEBUG", func(t *testing.T, _ *fault.Driver, l *snib.Locker) {
			acquire(t, l, "a")
			_, err := l.TryAcquire(t.Context(), "a")
			wantErr(t, "TryAcquire", err, snib.ErrHeld)
		}},
		{"GivenUp", "acquire failed", "DEBUG", func(t *testing.T, _ *fault.Driver, l *snib.Locker) {
			acquire(t, l, "a")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := l.Acquire(ctx, "a")
			wantErr(t, "Acquire", err, context.DeadlineExceeded)
		}},
		{"BadName", "acquire failed", "DEBUG", func(t *testing.T, _ *fault.Driver, l *snib.Locker) {
			_, err := l.Acquire(t.Context(), "")
			wantErr(t, "Acquire", err, snib.ErrInvalid)
		}},
		{"AdoptTooLate", "acquire failed", "DEBUG", func(t *testing.T, _ *fault.Driver, l *snib.Locker) {
			_, err := l.Adopt(t.Context(), "a", "id")
			wantErr(t, "Adopt", err, snib.ErrLost)
		}},
		{"Outage", "acquire failed", "WARN", func(t *testing.T, d *fault.Driver, l *snib.Locker) {
			d.Sever(fault.Fail)
			_, err := l.TryAcquire(t.Context(), "a")
			wantErr(t, "TryAcquire", err, snib.ErrUnavailable)
		}},
		{"GivenUpInOutage", "acquire failed", "WARN", func(t *testing.T, d *fault.Driver, l *snib.Locker) {
			d.Sever(fault.Hang)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := l.Acquire(ctx, "a")
			wantErr(t, "Acquire", err, context.DeadlineExceeded)
		}},
		{"RenewalFails", "renewal failed", "WARN", func(t *testing.T, d *fault.Driver, l *snib.Locker) {
			acquire(t, l, "a")
			d.Sever(fault.Fail)
			time.Sleep(ttl / 2)
		}},
		{"ReleaseFails", "lock released", "WARN", func(t *testing.T, d *fault.Driver, l *snib.Locker) {
			lock := acquire(t, l, "a")
			d.Sever(fault.Fail)
			wantErr(t, "Release", lock.Release(), snib.ErrUnreleased)
		}},
		{"ReleaseTooLate", "lock released", "WARN", func(t *testing.T, d *fault.Driver, l *snib.Locker) {
			lock := acquire(t, l.With(snib.Fair()), "a")
			if err := d.Break(t.Context(), "a", lock.ID()); err != nil {
				t.Fatal(err)
			}
			wantErr(t, "Release", lock.Release(), snib.ErrLost)
		}},
		{"ReleaseInTime", "lock released", "DEBUG",
			func(t *testing.T, _ *fault.Driver, l *snib.Locker) { release(t, acquire(t, l, "a")) }},
	}
	for _, tt := range tests {
		bubble(t, tt.name, func(t *testing.T) {
			var log lockedBuffer
			d := fault.Wrap(deafToLoss{memlock.New()}, fault.Plan{})
			tt.run(t, d, open(t, d,
				snib.Logging(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))))
			want, found := fmt.Sprintf("level=%s msg=%q", tt.level, tt.message), false
			for line := range strings.Lines(log.String()) {
				found = found || strings.Contains(line, want)
			}
			if !found {
				t.Errorf("no line with %q in\n%s", want, log.String())
			}
		})
	}
}

// An acquisition tells once that it waits for the store and not for a holder, and once that it does
// no longer: also if the outage begins while it is queued, and if it gives up. It does not wait for
// the hooks, because the driver may hold a mutex that its renewals need.
func TestStalled(t *testing.T) {
	outage := fmt.Errorf("%w: it is full", snib.ErrUnavailable)
	tests := []struct {
		name string
		fair bool
		call func(req driver.Request, try int) error // what a try at the store does before it is sent
		want []string
	}{
		{"Answers", false, func(driver.Request, int) error { return nil }, nil},
		{"Held", false, func(req driver.Request, _ int) error { req.NoteWait(nil); return nil }, nil},
		{"Fails", false, func(_ driver.Request, try int) error {
			if try < 3 {
				return outage
			}
			return nil
		}, []string{"stalled", "resumed"}},
		{"Outside", true, func(_ driver.Request, try int) error {
			if try < 3 {
				return outage
			}
			return nil
		}, []string{"stalled", "resumed"}},
		{"Queued", true, func(req driver.Request, _ int) error {
			for range 2 {
				req.NoteWait(nil)
				req.NoteWait(outage)
				req.NoteWait(outage)
			}
			return nil
		}, []string{"stalled", "resumed", "stalled", "resumed"}},
		{"GivesUp", false, func(driver.Request, int) error { return outage }, []string{"stalled", "resumed"}},
	}
	for _, tt := range tests {
		bubble(t, tt.name, func(t *testing.T) {
			var got []string
			ended := make(chan struct{})
			d, try := newSpy(new(memlock.Store)), 0
			d.acquire = func(_ context.Context, req driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
				try++
				if err := tt.call(req, try); err != nil {
					return nil, err
				}
				return send()
			}
			opts := []snib.Option{snib.RetryTimeout(10 * time.Second), snib.Tracing(&snib.Trace{
				WaitStalled: func(e snib.WaitStalledEvent) {
					<-ended
					if got = append(got, "stalled"); e.Name != "a" || !errors.Is(e.Err, snib.ErrUnavailable) {
						t.Errorf("stalled: %+v", e)
					}
				},
				WaitResumed: func(e snib.WaitResumedEvent) {
					if got = append(got, "resumed"); e.Name != "a" || tt.name == "Fails" && e.Stalled <= 0 {
						t.Errorf("resumed: %+v", e)
					}
				},
			})}
			if tt.fair {
				opts = append(opts, snib.Fair())
			}
			lock, err := open(t, d, opts...).Acquire(t.Context(), "a")
			if err == nil {
				release(t, lock)
			}
			close(ended)
			synctest.Wait()
			if (err != nil) != (tt.name == "GivesUp") || !slices.Equal(got, tt.want) {
				t.Errorf("got %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

// deafToLoss is a driver that does not report losses.
type deafToLoss struct{ *memlock.Driver }

func (d deafToLoss) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	req.OnLost = nil
	return d.Driver.Acquire(ctx, req)
}

// lockedBuffer is a bytes.Buffer for concurrent use.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// A Trace that panics leaves neither a lock that nobody has, nor a name that nobody can acquire.
func TestTracePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		d := newSpy(store)
		d.acquire = func(_ context.Context, _ driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
			lease, err := send()
			if n, _ := d.count(); n > 2 && err == nil {
				err = lease.Release(context.Background())
				lease = &staleLease{lease}
			}
			return lease, err
		}
		l := open(t, d)
		others := open(t, store.Open(), snib.NoWait())
		bad := l.With(snib.Tracing(&snib.Trace{
			WaitEnded: func(e snib.WaitEndedEvent) {
				if e.Name == "b" {
					panic("hook")
				}
			},
			Regressed: func(snib.RegressedEvent) { panic("hook") },
		}))
		mustPanic(t, "AcquireAll", "hook", func() { _, _ = bad.AcquireAll(t.Context(), "a", "b") })
		release(t, acquire(t, others, "a"))
		release(t, acquire(t, others, "b"))
		mustPanic(t, "Acquire", "hook", func() { _, _ = bad.Acquire(t.Context(), "a") })
		d.acquire = nil
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		lock, err := l.Acquire(ctx, "a")
		wantErr(t, "Acquire after a panic", err, nil)
		release(t, lock)
	})
}

// AcquireAny does not wait for a goroutine of its own that a Trace has ended.
func TestTraceGoexits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		l := open(t, store.Open(), snib.Tracing(&snib.Trace{WaitEnded: func(e snib.WaitEndedEvent) {
			if e.Err == nil {
				runtime.Goexit()
			}
		}}))
		held := acquire(t, open(t, store.Open()), "a")
		time.AfterFunc(time.Second, func() { _ = held.Release() })
		lock, err := l.AcquireAny(t.Context(), "a")
		if lock != nil || !errors.As(err, new(*snib.Error)) {
			t.Errorf("AcquireAny = %v, %v, want an Error", lock, err)
		}
		release(t, acquire(t, open(t, store.Open(), snib.NoWait()), "a"))
	})
}

// A staleLease has a token that went back.
type staleLease struct{ driver.Lease }

func (l *staleLease) Grant() driver.Grant {
	g := l.Lease.Grant()
	g.Token = 1
	return g
}
