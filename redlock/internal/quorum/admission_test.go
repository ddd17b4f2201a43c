package quorum_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sniblock/snib/redlock/internal/quorum"
)

func TestAdmission(t *testing.T) {
	p := nodes(3)
	q := p.Quarantine()
	type observation struct {
		at       time.Duration
		standing quorum.Standing
		move     quorum.Move
		wait     time.Duration
	}
	well := quorum.Standing{Run: "r1", Admitted: "r1"}
	blank := quorum.Standing{Run: "r1"}
	marked := quorum.Standing{Run: "r1", Mark: "m1"}
	tests := []struct {
		name         string
		observations []observation
	}{
		{"Well", []observation{{0, well, quorum.None, 0}, {time.Hour, well, quorum.None, 0}}},
		{"WaitsAndReads", []observation{
			{0, blank, quorum.Mark, 0}, {1, marked, quorum.Wait, q}, {1 + q - 1, marked, quorum.Wait, 1},
			{1 + q, marked, quorum.Read, 0},
		}},
		{"OldMemory", []observation{{0, quorum.Standing{Run: "r2", Admitted: "r1"}, quorum.Mark, 0}}},
		{"TheWaitBeginsWithTheMark", []observation{{0, blank, quorum.Mark, 0}, {q, marked, quorum.Wait, q}}},
		{"AnothersMark", []observation{{0, marked, quorum.Wait, q}, {q, marked, quorum.Read, 0}}},
		{"RestartsAgain", []observation{
			{0, marked, quorum.Wait, q},
			{q - 1, quorum.Standing{Run: "r2", Mark: "m1"}, quorum.Wait, q},
			{q, quorum.Standing{Run: "r2", Mark: "m1"}, quorum.Wait, q - 1},
		}},
		{"ForgetsAgain", []observation{
			{0, marked, quorum.Wait, q},
			{q - 1, blank, quorum.Mark, 0},
			{q, quorum.Standing{Run: "r1", Mark: "m2"}, quorum.Wait, q},
		}},
		{"ForgetsAgainUnseen", []observation{
			{0, marked, quorum.Wait, q},
			// Another agent has marked the node first.
			{q, quorum.Standing{Run: "r1", Mark: "m2"}, quorum.Wait, q},
		}},
		{"AnotherHasWaited", []observation{
			{0, quorum.Standing{Run: "r1", Mark: "m1", Waited: q - 2}, quorum.Wait, 2},
			{1, quorum.Standing{Run: "r1", Mark: "m1", Waited: q}, quorum.Read, 0},
		}},
		{"AdmittedByAnother", []observation{
			{0, marked, quorum.Wait, q},
			{q - 1, well, quorum.None, 0},
			// The node has forgotten once more, so this is another wait, whatever the
			// mark says.
			{q, marked, quorum.Wait, q},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := p.Admission()
			for i, l := range tt.observations {
				move, wait := a.Look(l.standing, at(l.at))
				if move != l.move || wait != l.wait {
					t.Fatalf("look %d: move %d in %v, want %d in %v", i, move, wait, l.move, l.wait)
				}
				if run, mark := a.Ticket(); move == quorum.Read && (run != l.standing.Run || mark != l.standing.Mark) {
					t.Fatalf("look %d: the ticket is for run %q and mark %q, want those of %+v", i, run, mark, l.standing)
				}
			}
		})
	}
}

// TestWaited checks that neither a minority of clocks that are set, nor nodes that do not answer,
// make the wait shorter.
func TestWaited(t *testing.T) {
	const second = uint64(time.Second / time.Microsecond)
	since := quorum.Clocks{100 * second, 200 * second, 300 * second, 400 * second, 500 * second}
	for _, tt := range []struct {
		name string
		now  quorum.Clocks
		want time.Duration
	}{
		{"All", quorum.Clocks{103 * second, 203 * second, 303 * second, 403 * second, 503 * second}, 3 * time.Second},
		{"Majority", quorum.Clocks{103 * second, 0, 304 * second, 0, 505 * second}, 3 * time.Second},
		{"Minority", quorum.Clocks{103 * second, 0, 304 * second}, 0},
		{"MinoritySetForward", quorum.Clocks{103 * second, 203 * second, 303 * second, 9999 * second, 9999 * second},
			3 * time.Second},
		{"MinoritySetBack", quorum.Clocks{103 * second, 203 * second, 303 * second, second, second}, 3 * time.Second},
		{"MajoritySetBack", quorum.Clocks{103 * second, 203 * second, second, second, second}, 0},
		{"Absurd", quorum.Clocks{1 << 63, 1 << 63, 1 << 63, 403 * second, 503 * second}, 0},
	} {
		if got := nodes(5).Waited(since, tt.now); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	if got := nodes(5).Waited(quorum.Clocks{1, 2}, since); got != 0 {
		t.Errorf("with two clocks: %v, want 0", got)
	}
}

func TestReading(t *testing.T) {
	type answer struct {
		node     int
		admitted bool
		counters quorum.Counters
	}
	const yes, no = true, false
	tests := []struct {
		name     string
		nodes    int
		answers  []answer
		complete bool
		lost     bool // a majority was lost
		read     quorum.Counters
	}{
		{"Majority", 5, []answer{{1, yes, quorum.Counters{5, 1}}, {2, yes, quorum.Counters{1, 7}},
			{4, yes, quorum.Counters{2, 2}}},
			true, false, quorum.Counters{5, 7}},
		{"OneLess", 5, []answer{{1, yes, nil}, {2, yes, nil}}, false, false, nil},
		{"OwnMemoryDoesNotCount", 5, []answer{{1, yes, nil}, {2, yes, nil}, {0, yes, nil}}, false, false, nil},
		{"SameTwice", 5, []answer{{1, yes, nil}, {2, yes, nil}, {2, yes, nil}}, false, false, nil},
		{"UnadmittedDoesNotCount", 5, []answer{{1, yes, nil}, {2, yes, nil}, {3, no, nil}}, false, false, nil},
		{"UnadmittedAndThenAdmitted", 5, []answer{{1, no, nil}, {3, no, nil}, {1, yes, nil}}, false, false, nil},
		{"AdmittedAndThenUnadmitted", 5, []answer{{1, yes, nil}, {1, no, nil}, {3, no, nil}}, false, false, nil},
		{"AMinorityForgot", 5, []answer{{1, no, nil}}, false, false, nil},
		{"AMajorityForgot", 5, []answer{{1, no, nil}, {2, no, nil}, {3, yes, nil}}, false, true, nil},
		{"AllForgot", 3, []answer{{1, no, nil}, {2, no, nil}}, false, true, nil},
		{"OneOfThreeForgotToo", 3, []answer{{1, no, nil}, {2, yes, nil}}, false, true, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := nodes(tt.nodes).Reading(0, 2)
			for _, a := range tt.answers {
				r.Answer(a.node, a.admitted, a.counters)
			}
			if got := r.Complete(); got != tt.complete {
				t.Errorf("complete: %v, want %v", got, tt.complete)
			}
			if got := r.MajorityLost(); got != tt.lost {
				t.Errorf("a majority has forgotten: %v, want %v", got, tt.lost)
			}
			if got := r.Counters(); tt.read != nil && !slices.Equal(got, tt.read) {
				t.Errorf("counters %v, want %v", got, tt.read)
			}
		})
	}
}
