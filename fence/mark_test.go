package fence_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
)

// A hold is a fence.Hold with given values.
type hold struct {
	name  string
	token uint64
	owner string
}

func (h hold) Name() string  { return h.name }
func (h hold) Token() uint64 { return h.token }
func (h hold) ID() string    { return h.owner }

// mark returns the mark of a hold with that token and owner.
func mark(t testing.TB, token uint64, owner string) fence.Mark {
	t.Helper()
	m, err := fence.Of(hold{"account/42", token, owner})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestOf(t *testing.T) {
	m := mark(t, 7, "a secret")
	if want := (fence.Mark{Lock: "account/42", Token: 7,
		Owner: "a3e5c5fa40d8c38ad7df1a66d9e9dd9d"}); m.Lock != want.Lock || m.Token != want.Token ||
		len(m.Owner) != len(want.Owner) {
		t.Errorf("Of = %+v", m)
	}
	if strings.Contains(fmt.Sprint(m), "secret") {
		t.Errorf("Of = %+v, which tells the owner", m)
	}
	for _, h := range []hold{{"a", 0, "o"}, {"a", math.MaxInt64 + 1, "o"}, {"", 1, "o"}, {"a\x00", 1, "o"}} {
		if m, err := fence.Of(h); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Of(%+v) = %+v, %v, want ErrInvalid", h, m, err)
		}
	}
}

func TestAfter(t *testing.T) {
	tests := []struct {
		name       string
		mark, last fence.Mark
		want       error
	}{
		{"First", mark(t, 1, "a"), fence.Mark{}, nil},
		{"Later", mark(t, 8, "b"), mark(t, 7, "a"), nil},
		{"Same", mark(t, 7, "a"), mark(t, 7, "a"), nil},
		{"Stale", mark(t, 6, "a"), mark(t, 7, "a"), fence.ErrStale},
		{"Conflict", mark(t, 7, "b"), mark(t, 7, "a"), fence.ErrConflict},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.mark.After(tt.last)
			for _, reason := range []error{fence.ErrStale, fence.ErrConflict} {
				if got, want := errors.Is(err, reason), errors.Is(tt.want, reason); got != want {
					t.Errorf("After = %v; is it %q: %v, want %v", err, reason, got, want)
				}
			}
			var refused *fence.RefusedError
			if errors.As(err, &refused) && (refused.Last != tt.last || refused.Mark != tt.mark) {
				t.Errorf("After = %+v, want both marks in it", refused)
			}
			if (err == nil) != (tt.want == nil) {
				t.Errorf("After = %v, want %v", err, tt.want)
			}
		})
	}
}

// A rule decides whether a hold is let in.
type rule func(m, last fence.Mark) bool

// A resource accepts a sequence of whole holds, whatever the tokens are: in order, out of
// order, or the same twice. Each condition of the rule is necessary: without it the same test
// finds a counterexample.
func TestAcceptedIsSerial(t *testing.T) {
	after := func(m, last fence.Mark) bool { return m.After(last) == nil }
	tests := []struct {
		name  string
		rule  rule
		claim bool
		want  string // what goes wrong
	}{
		{"Guard", after, true, ""},
		{"NoOwner", func(m, last fence.Mark) bool { return m.Token >= last.Token }, true, "came back"},
		{"Less", func(m, last fence.Mark) bool { return m.Token > last.Token }, true, "refused"},
		{"NoClaim", after, false, "came back"},
		{"NoGuard", func(_, _ fence.Mark) bool { return true }, true, "came back"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			found := ""
			for seed := uint64(0); seed < 5000 && found == ""; seed++ {
				found = interleave(rand.New(rand.NewPCG(seed, 1)), tt.rule, tt.claim)
			}
			switch {
			case tt.want == "" && found != "":
				t.Errorf("counterexample: %s", found)
			case tt.want != "" && !strings.Contains(found, tt.want):
				t.Errorf("found %q, want a counterexample in which somebody %s", found, tt.want)
			}
		})
	}
}

// interleave lets three holders read, modify and write twice, each after a claim unless claim
// is false, in a random order of steps. It returns how the accepted operations are not a
// sequence of whole holds, or how the last hold is refused, or "" if all is well.
func interleave(r *rand.Rand, admit rule, claim bool) string {
	tokens := []uint64{1, 2, 3}
	switch r.IntN(3) {
	case 1:
		r.Shuffle(len(tokens), func(i, j int) { tokens[i], tokens[j] = tokens[j], tokens[i] })
	case 2:
		tokens[r.IntN(3)] = tokens[r.IntN(3)]
	}
	steps := []string{"claim", "read", "write", "read", "write"}
	if !claim {
		steps = steps[1:]
	}
	var (
		last    fence.Mark
		inside  = -1 // the holder of the last accepted operation
		left    [3]bool
		out     [3]bool // was refused, and has stopped
		at      [3]int
		history []string
	)
	for {
		var able []int
		for i := range at {
			if at[i] < len(steps) && !out[i] {
				able = append(able, i)
			}
		}
		if len(able) == 0 {
			return ""
		}
		i := able[r.IntN(len(able))]
		step, m := steps[at[i]], fence.Mark{Token: tokens[i], Owner: string(rune('a' + i))}
		at[i]++
		history = append(history, fmt.Sprintf("%s(%d) %ss", m.Owner, m.Token, step))
		if checked := claim || step == "write"; checked {
			if !admit(m, last) {
				if m == last {
					return strings.Join(history, ", ") + ": the last hold is refused"
				}
				out[i] = true
				history[len(history)-1] += " and is refused"
				continue
			}
			last = m
		}
		if left[i] {
			return strings.Join(history, ", ") + ": it came back"
		}
		if inside >= 0 && inside != i {
			left[inside] = true
		}
		inside = i
	}
}
