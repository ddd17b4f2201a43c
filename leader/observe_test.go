package leader_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/leader"
	"github.com/sniblock/snib/memlock"
)

// An observation is what Observe yielded, and when.
type observation struct {
	at  time.Duration
	who leader.Leader
	err error
}

// observe observes until ctx is done, in the background.
func observe(ctx context.Context, l *snib.Locker) (all func() []observation) {
	began, done := time.Now(), make(chan []observation, 1)
	go func() {
		var seen []observation
		for who, err := range leader.Observe(ctx, l, name, time.Second) {
			seen = append(seen, observation{time.Since(began), who, err})
		}
		done <- seen
	}()
	return func() []observation { return <-done }
}

// An observer sees each change once: nobody, the first leader, nobody, the next leader.
func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(memlock.Store)
		ctx, cancel := context.WithCancel(t.Context())
		observer, _ := host(t, s)
		all := observe(ctx, observer)
		var tokens []uint64
		term := func(l *snib.Locker) {
			lock, err := l.Acquire(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			tokens = append(tokens, lock.Token())
			time.Sleep(3 * time.Second)
			if err := lock.Release(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2500 * time.Millisecond)
		a, _ := host(t, s, snib.Label("a:80"))
		b, _ := host(t, s, snib.Label("b:80"))
		term(a) // from 2.5 s to 5.5 s
		time.Sleep(2 * time.Second)
		term(b) // from 7.5 s to 10.5 s
		term(b) // at once again: another term
		time.Sleep(time.Second)
		cancel()
		want := []struct {
			at    time.Duration
			label string
			token uint64
		}{{0, "", 0}, {3 * time.Second, "a:80", tokens[0]}, {6 * time.Second, "", 0}, {8 * time.Second, "b:80", tokens[1]},
			{11 * time.Second, "b:80", tokens[2]}, {14 * time.Second, "", 0}}
		got := all()
		if len(got) != len(want) {
			t.Fatalf("Observe yielded %+v, want %+v", got, want)
		}
		for i, w := range want {
			g := got[i]
			if g.err != nil || g.at != w.at || g.who.Leads != (w.token > 0) || g.who.Token != w.token ||
				g.who.Holder.Label != w.label {
				t.Errorf("observation %d = %+v, want %+v", i, g, w)
			}
		}
	})
}

// An outage is told once, whether the store refuses or hangs, and after it the leader is told
// again. The error that ends the sequence is told even after an outage.
func TestObserveOutage(t *testing.T) {
	tests := []struct {
		name   string
		effect fault.Effect
		want   error
		at     time.Duration
	}{
		{"Fail", fault.Fail, fault.ErrSevered, 3 * time.Second},
		{"Hang", fault.Hang, snib.ErrUnavailable, 8 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(memlock.Store)
				l, _ := host(t, s)
				lock, err := l.Acquire(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				observer, net := host(t, s)
				all := observe(t.Context(), observer)
				time.Sleep(2500 * time.Millisecond)
				net.Sever(tt.effect)
				time.Sleep(20 * time.Second)
				net.Heal()
				time.Sleep(10 * time.Second)
				net.Sever(tt.effect)
				time.Sleep(20 * time.Second)
				net.Heal()
				observer.Close()
				got := all()
				if len(got) != 5 || got[0].who.Token != lock.Token() || got[2].who.Token != lock.Token() || got[2].err != nil ||
					!errors.Is(got[4].err, snib.ErrClosed) {
					t.Fatalf("Observe yielded %+v, want twice the leader and one error, and ErrClosed", got)
				}
				if !errors.Is(got[1].err, tt.want) || got[1].who.Leads || got[1].at != tt.at {
					t.Errorf("Observe yielded %+v in an outage, want %v at %v", got[1], tt.want, tt.at)
				}
				if err := lock.Release(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// An error that a retry does not cure ends the sequence, and so does the caller.
func TestObserveEnds(t *testing.T) {
	s := new(memlock.Store)
	l, _ := host(t, s)
	shared, _ := host(t, s, snib.Shared())
	lock, err := shared.Acquire(t.Context(), "shared")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name     string
		l        *snib.Locker
		lock     string
		interval time.Duration
		want     error
	}{
		{"NoLocker", nil, name, time.Second, snib.ErrInvalid},
		{"NoInterval", l, name, 0, snib.ErrInvalid},
		{"NoName", l, "", time.Second, snib.ErrInvalid},
		{"Shared", l, "shared", time.Second, snib.ErrKind},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := 0
			for who, err := range leader.Observe(t.Context(), tt.l, tt.lock, tt.interval) {
				n++
				if !errors.Is(err, tt.want) || who.Leads {
					t.Errorf("Observe yielded %+v, %v, want %v", who, err, tt.want)
				}
			}
			if n != 1 {
				t.Errorf("Observe yielded %d times, want 1", n)
			}
		})
	}
	for who, err := range leader.Observe(t.Context(), l, name, time.Hour) {
		if who.Leads || err != nil {
			t.Errorf("Observe yielded %+v, %v, want that nobody leads", who, err)
		}
		break
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}
