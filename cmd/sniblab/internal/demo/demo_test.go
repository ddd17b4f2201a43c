package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
	"github.com/sniblock/snib/cmd/sniblab/internal/timeline"
	"github.com/sniblock/snib/internal/livetest"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// TestDemos runs each demo. Run fails if a variant does not do the damage that it must do, which is
// none at the right variants.
func TestDemos(t *testing.T) {
	for _, s := range All() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			err := Run(t.Context(), s, log{t})
			for errors.Is(err, ErrTooBusy) {
				t.Log("once more")
				err = Run(t.Context(), s, log{t})
			}
			if missing, ok := errors.AsType[*MissingError](err); ok {
				livetest.Missing(t, missing.Server, missing.Why)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// needRedis skips a test without Redis.
func needRedis(t *testing.T) { livetest.Binary(t, "redis", "redis-server") }

// A log writes what happens to the test's log.
type log struct{ t *testing.T }

func (l log) Begin(a Variant)        { l.t.Logf("%s", a.Title) }
func (l log) Starting(server string) { l.t.Logf("starting %s", server) }

func (l log) Event(e timeline.Event) {
	l.t.Logf("%7.3f  %-5s %s  [%s]", e.At.Seconds(), e.Lane, e.Text, e.Server)
}
func (l log) End(_ Variant, r Result) {
	l.t.Logf("damage: %v; stock %d after %d sales", r.Damage, r.Stock, r.Sold)
}

// TestTexts checks what a user needs to find and to understand a demo.
func TestTexts(t *testing.T) {
	seen := make(map[string]bool)
	for _, s := range All() {
		if seen[s.Name] {
			t.Errorf("%s is listed twice", s.Name)
		}
		seen[s.Name] = true
		for what, text := range map[string]string{"title": s.Title, "story": s.Story, "advice": s.Advice, "page": s.Page} {
			if text == "" {
				t.Errorf("%s has no %s", s.Name, what)
			}
		}
		if !strings.HasSuffix(s.Advice, ".") || !strings.HasSuffix(strings.TrimSuffix(s.Story, ")"), ".") {
			t.Errorf("%s: story and advice are sentences", s.Name)
		}
	}
}

// TestWants checks that each broken variant must do damage, and that no right variant may.
func TestWants(t *testing.T) {
	for _, s := range All() {
		if s.Broken.want == (Damage{}) {
			t.Errorf("%s: the broken variant does no damage", s.Name)
		}
		if s.Right.want != (Damage{}) {
			t.Errorf("%s: the right variant does damage: %v", s.Name, s.Right.want)
		}
	}
}

// TestRunFails checks that a demo fails if a variant ends otherwise than it must, and that what it
// started has ended then.
func TestRunFails(t *testing.T) {
	needRedis(t)
	tests := []struct {
		name string
		run  func(*Director)
		want string
	}{
		{"Damage", func(s *Director) { s.Redis().Client("A", pattern.SetNX, time.Minute) }, "the damage is: none; it should be: 1 job is blocked for good"},
		{"Pattern", func(s *Director) { s.Redis().Client("A", "x", time.Minute) }, `A, connecting: unknown pattern "x"`},
		{"Client", func(s *Director) { s.Redis().Client("B", pattern.SetNX, time.Minute) }, "the demo has no client B"},
		{"Busy", func(s *Director) {
			a := s.Redis().Client("A", pattern.SetNX, time.Minute)
			a.Acquire(Before("SET"))
			a.Work()
		}, "A can't work: it is still at acquire"},
		{"Death", func(s *Director) {
			a := s.Redis().Client("A", pattern.SetNX, time.Minute)
			a.process.Kill()
			a.Acquire()
		}, "A"},
		{"Server", func(s *Director) { s.Redis().Must("NOSUCHCOMMAND") }, "unknown command"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := Demo{Name: "test", Clients: []string{"A"}, Broken: Variant{run: tt.run, want: Damage{Blocked: 1}}}
			err := Run(t.Context(), s, log{t})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Run = %v, want %q", err, tt.want)
			}
		})
	}
}

// TestPause checks that a client does nothing while it is paused.
func TestPause(t *testing.T) {
	needRedis(t)
	run := func(s *Director) {
		r := s.Redis()
		a := r.Client("A", pattern.SetNX, time.Minute)
		a.Acquire()
		a.Work(Before("SET"))
		a.Pause()
		a.send(request{Op: opGoOn})
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", a.process.PID())); err != nil || !strings.Contains(string(stat), ") T ") {
			t.Errorf("the process is not stopped: %s, %v", stat, err)
		}
		if got := r.stock(); got != OpeningStock {
			t.Errorf("the stock is %d while the client is paused, want %d", got, OpeningStock)
		}
		a.Resume()
		a.reply()
		a.Release()
	}
	s := Demo{Name: "test", Clients: []string{"A"}, Broken: Variant{run: run}, Right: Variant{run: run}}
	if err := Run(t.Context(), s, log{t}); err != nil {
		t.Fatal(err)
	}
}

// TestCancelled checks that Run ends with the cause of its context.
func TestCancelled(t *testing.T) {
	needRedis(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("nobody looks")
	run := func(s *Director) {
		r := s.Redis()
		a, b := r.Client("A", pattern.SetNX, time.Minute), r.Client("B", pattern.SetNX, time.Minute)
		a.Acquire()
		b.Acquire()
		cancel(cause)
		b.Finish()
	}
	s := Demo{Name: "test", Clients: []string{"A", "B"}, Broken: Variant{run: run}}
	if err := Run(ctx, s, log{t}); !errors.Is(err, cause) {
		t.Errorf("Run = %v, want %v", err, cause)
	}
}

// TestMissing checks that a demo without its server says so.
func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := Run(t.Context(), setnxExpire(), log{t})
	if missing, ok := errors.AsType[*MissingError](err); !ok || missing.Server != "redis" {
		t.Errorf("Run = %v, want that Redis is missing", err)
	}
}
