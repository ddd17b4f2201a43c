package judge

import (
	"slices"
	"testing"

	"github.com/sniblock/snib/internal/history"
)

// commands adds a reading of how many commands the store has executed.
func (r *run) commands(fault string, at int64, n uint64) {
	r.add(Commands, "", 0, at, func(e *history.Event) { e.Fault, e.Token, e.Name = fault, n, "" })
}

// TestCosts checks what a hold costs, as the store and the network show it.
func TestCosts(t *testing.T) {
	for _, tt := range []struct {
		name       string
		from, till uint64
		want       []float64
	}{
		{"TwoHolds", 100, 107, []float64{3.5}},
		{"Restart", 100, 3, nil}, // it has reset the count
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r run
			r.add(history.Start, "A", 0, 0)
			r.add(history.Start, "B", 0, 0)
			r.work("A", 1, 0, 1, 8)
			r.commands("", 9, tt.from)
			r.work("A", 2, 0, 10, 50)
			r.work("B", 1, 0, 60, 90)
			r.commands("", 100, tt.till)
			r.add(Connections, "", 0, 100, func(e *history.Event) { e.Token = 6 })
			r.work("A", 3, 0, 110, 150)
			got := Judge(r, Rules{})
			if !slices.Equal(got.PerHold, tt.want) || !slices.Equal(got.Connections, []float64{3}) {
				t.Errorf("commands %v, connections %v, want %v and 3", got.PerHold, got.Connections, tt.want)
			}
		})
	}
}

// TestMedian checks that the costs of several runs come together, and their median.
func TestMedian(t *testing.T) {
	var all Result
	for _, n := range []float64{9, 1, 5, 7} {
		all.Add(Result{PerHold: []float64{n}, Connections: []float64{2}})
	}
	if n, ok := Median(all.PerHold); !ok || n != 5 || len(all.Connections) != 4 {
		t.Errorf("the median of %v is %v, %v; connections: %v", all.PerHold, n, ok, all.Connections)
	}
	if _, ok := Median(nil); ok {
		t.Error("there is a median of nothing")
	}
}

// crowd adds five holds of two clients, each with perHold commands, and then a hold of each of
// twelve more clients, with passing commands. While they wait for the first of these holds, the
// store executes polling commands a second.
func (r *run) crowd(perHold, passing, polling uint64) {
	const calm, waiting, passed = 1000, 2000, 2300
	r.commands("", 0, 7)
	for i := range int64(5) {
		r.work([]string{"A", "B"}[i%2], i, 0, 10+100*i, 90+100*i)
	}
	r.commands("", calm, 7+5*perHold)
	r.add(history.Call, "C", 99, calm) // all the time
	for i := range int64(12) {
		r.add(history.Call, "D", i, calm)
	}
	r.commands("crowd", waiting-500, 1000)
	r.commands("crowd", waiting, 1000+polling/2)
	for i := range int64(12) {
		r.add(history.Acquired, "D", i, waiting+20*i+5)
		r.add(history.Release, "D", i, waiting+20*i+20)
	}
	r.commands("crowd", passed, 1000+polling/2+12*passing)
}

// TestHerd judges hand-overs in a crowd of twelve and one, of whom 6.5 wait on average.
func TestHerd(t *testing.T) {
	for _, tt := range []struct {
		name                      string
		perHold, passing, polling uint64
		assumes                   string
		want                      Verdict
		inCrowd                   float64
	}{
		{name: "OneIsWoken", perHold: 3, passing: 3, want: Safe, inCrowd: 3},
		{name: "AllAreWoken", perHold: 3, passing: 10, want: Herd, inCrowd: 10},
		{name: "Assumed", perHold: 3, passing: 10, assumes: "few wait", want: Assuming, inCrowd: 10},
		{name: "Polling", perHold: 3, passing: 3 + 10, polling: 800, want: Safe, inCrowd: 3},
		{name: "LargeRequests", perHold: 30, passing: 38, want: Safe, inCrowd: 38},
		{name: "LargeRequestsOfAll", perHold: 30, passing: 100, want: Herd, inCrowd: 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r run
			r.add(history.Start, "A", 0, 0)
			r.crowd(tt.perHold, tt.passing, tt.polling)
			got := Judge(r, Rules{Assumes: map[string]string{"herd": tt.assumes}})
			if got.Verdict() != tt.want || !slices.Equal(got.PerHold, []float64{float64(tt.perHold)}) || len(got.Crowds) != 1 {
				t.Fatalf("verdict %s, %+v, want %s, and %d commands per hold", got.Verdict(), got, tt.want, tt.perHold)
			}
			if c := got.Crowds[0].PerHold; c < tt.inCrowd-0.01 || c > tt.inCrowd+0.01 {
				t.Errorf("%v commands per hold in a crowd, want %v", c, tt.inCrowd)
			}
		})
	}
}

// TestMostCrowds checks that one crowd does not decide about several runs.
func TestMostCrowds(t *testing.T) {
	herd, none := Crowd{PerHold: 20, Usual: 5, More: 8}, Crowd{PerHold: 5, Usual: 5, More: 8}
	var all Result
	for _, tt := range []struct {
		crowds []Crowd
		want   Verdict
	}{
		{nil, Safe},
		{[]Crowd{none}, Safe},
		{[]Crowd{herd}, Safe},
		{[]Crowd{herd}, Herd},
	} {
		all.Add(Result{Crowds: tt.crowds})
		if got := all.Verdict(); got != tt.want {
			t.Errorf("after %+v, the verdict is %s, want %s", all.Crowds, got, tt.want)
		}
	}
}
