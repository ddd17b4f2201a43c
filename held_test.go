package snib_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/memlock"
)

// mustBeHeldError returns the HeldError in err.
func mustBeHeldError(t *testing.T, what string, err error) *snib.HeldError {
	t.Helper()
	wantErr(t, what, err, snib.ErrHeld)
	var held *snib.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("%s = %v, which is no *HeldError", what, err)
	}
	return held
}

// Whoever refused the acquisition, the store or the local queue, and however it waited, its error
// says who holds the lock, since when, for how long at most, and how many wait. It contains no
// ids.
func TestHeldError(t *testing.T) {
	const wait = time.Second
	ways := []struct {
		name   string
		waited time.Duration
		call   func(context.Context, *snib.Locker) error
	}{
		{"Try", 0, func(ctx context.Context, l *snib.Locker) error { _, err := l.TryAcquire(ctx, "a"); return err }},
		{"NoWait", 0, func(ctx context.Context, l *snib.Locker) error {
			return l.With(snib.NoWait()).Do(ctx, "a", func(context.Context, *snib.Lock) error { return nil })
		}},
		{"MaxWait", wait, func(ctx context.Context, l *snib.Locker) error {
			_, err := l.With(snib.MaxWait(wait)).Acquire(ctx, "a")
			return err
		}},
		{"FairMaxWait", wait, func(ctx context.Context, l *snib.Locker) error {
			_, err := l.With(snib.MaxWait(wait), snib.Fair()).Acquire(ctx, "a")
			return err
		}},
		{"All", 0, func(ctx context.Context, l *snib.Locker) error {
			_, err := l.With(snib.NoWait()).AcquireAll(ctx, "0", "a", "b")
			return err
		}},
		{"AllMaxWait", wait, func(ctx context.Context, l *snib.Locker) error {
			_, err := l.With(snib.MaxWait(wait)).AcquireAll(ctx, "0", "a", "b")
			return err
		}},
	}
	for _, local := range []bool{false, true} {
		for _, tt := range ways {
			bubble(t, fmt.Sprintf("%s/local=%v", tt.name, local), func(t *testing.T) {
				store := new(memlock.Store)
				holder := open(t, store.Open(), snib.Label("order 17"), snib.Prefix("p:"))
				l := open(t, store.Open(), snib.Prefix("p:"))
				if local {
					l = holder
				}
				lock := acquire(t, holder, "a")
				ctx, cancel := context.WithCancel(t.Context())
				for range 2 {
					go l.Acquire(ctx, "a")
				}
				time.Sleep(3 * time.Second)
				err := tt.call(t.Context(), l)
				held := mustBeHeldError(t, tt.name, err)
				if held.Waited != tt.waited {
					t.Errorf("Waited = %v, want %v", held.Waited, tt.waited)
				}
				info, infoErr := held.Info(t.Context())
				if infoErr != nil || len(info.Holders) != 1 || info.Waiters != 2 {
					t.Fatalf("Info = %+v, %v; want one holder and two waiters", info, infoErr)
				}
				h, host := info.Holders[0], mustHost(t)
				if want := (driver.Holder{Host: host, PID: os.Getpid(), Label: "order 17"}); h.Holder != want || h.Token != lock.Token() {
					t.Errorf("Holders[0] = %+v", h)
				}
				if want := 3*time.Second + tt.waited; h.Held != want || h.Left <= 0 || h.Left > ttl {
					t.Errorf("held for %v with %v left, want %v and up to %v", h.Held, h.Left, want, ttl)
				}
				if want := 3*time.Second + tt.waited; info.RetryAfter() != want {
					t.Errorf("RetryAfter = %v, want %v as the lock was held so far", info.RetryAfter(), want)
				}
				for _, text := range []string{err.Error(), fmt.Sprintf("%+v %v", info, h)} {
					if strings.Contains(text, lock.ID()) {
						t.Errorf("%q contains the id", text)
					}
				}
				if want := "held by " + host; !strings.HasPrefix(info.String(), want) ||
					!strings.Contains(info.String(), "(order 17) for ") || !strings.HasSuffix(info.String(), "; waiting: 2") {
					t.Errorf("String = %q", info)
				}
				cancel()
				synctest.Wait()
				release(t, lock)
				if info, err := held.Info(t.Context()); err != nil || len(info.Holders) > 0 || info.RetryAfter() != time.Second {
					t.Errorf("Info after the release = %+v, %v; want no holder, and to retry after 1s", info, err)
				}
			})
		}
	}
}

func mustHost(t *testing.T) string {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// Info does not wait longer for a store than a request does, and says that it is unavailable.
func TestHeldInfoOfDeadStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		acquire(t, open(t, store.Open()), "a")
		d := fault.Wrap(store.Open(), fault.Plan{})
		_, err := open(t, d).TryAcquire(t.Context(), "a")
		held := mustBeHeldError(t, "TryAcquire", err)
		d.Sever(fault.Hang)
		began := time.Now()
		info, err := held.Info(t.Context())
		wantErr(t, "Info", err, snib.ErrUnavailable)
		if took := time.Since(began); took != driver.AnswerTimeout || info.RetryAfter() != time.Second ||
			errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Info = %v, %v after %v", info, err, took)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	tests := []struct {
		name    string
		holders []snib.Holding
		want    time.Duration
	}{
		{"Short", []snib.Holding{{Held: 200 * time.Millisecond, Left: 29 * time.Second}}, time.Second},
		{"RoundedUp", []snib.Holding{{Held: 7001 * time.Millisecond, Left: 29 * time.Second}}, 8 * time.Second},
		{"Long", []snib.Holding{{Held: time.Hour, Left: 29 * time.Second}}, 29 * time.Second},
		{"UnknownAge", []snib.Holding{{Left: 12 * time.Second}}, 12 * time.Second},
		{"Endless", []snib.Holding{{Left: driver.NoExpiry}}, time.Minute},
		{"Inherited", []snib.Holding{{Inherited: true, Held: 20 * time.Second}}, 20 * time.Second},
		{"FirstOfSlots", []snib.Holding{{Held: time.Hour, Left: 29 * time.Second},
			{Held: time.Hour, Left: 4 * time.Second}}, 4 * time.Second},
	}
	for _, tt := range tests {
		if got := (snib.HeldInfo{Holders: tt.holders}).RetryAfter(); got != tt.want {
			t.Errorf("%s: RetryAfter = %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestHeldInfoText checks that text of other programs can't break a line of a log.
func TestHeldInfoText(t *testing.T) {
	info := snib.HeldInfo{Holders: []snib.Holding{
		{Holder: snib.Holder{Host: "web-1", PID: 42, Label: "a\nb"}, Held: time.Second, Left: 1500 * time.Millisecond},
		{Foreign: "Redisson", Left: driver.NoExpiry},
		{Left: time.Second}, {}, {},
	}}
	want := `held by web-1 pid 42 ("a\nb") for 1s, lease left 1.5s, and by Redisson, and by a program other than snib, lease left 1s, and by 2 more`
	if got := info.String(); got != want {
		t.Errorf("String = %s, want %s", got, want)
	}
}
