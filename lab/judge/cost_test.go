package judge

import (
	"slices"
	"testing"

	"github.com/sniblock/snib/internal/history"
)

// commands adds a reading of how many commands the store has executed.
func (r *run) commands(at int64, n uint64) {
	r.add(Commands, "", 0, at, func(e *history.Event) { e.Token, e.Name = n, "" })
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
			r.commands(9, tt.from)
			r.work("A", 2, 0, 10, 50)
			r.work("B", 1, 0, 60, 90)
			r.commands(100, tt.till)
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
