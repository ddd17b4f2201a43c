package quorum_test

import (
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
)

func TestTally(t *testing.T) {
	const end = time.Second
	type answer struct {
		yes        bool
		node       int
		at         time.Duration
		won, ended bool
	}
	const yes, no = true, false
	tests := []struct {
		name    string
		nodes   int
		end     driver.Instant
		answers []answer
	}{
		{"Majority", 5, at(end), []answer{{yes, 0, 0, false, false}, {yes, 2, 0, false, false}, {yes, 4, end - 1, true, false}}},
		{"SameTwice", 3, at(end), []answer{{yes, 0, 0, false, false}, {yes, 0, 0, false, false}}},
		{"LateIsNothing", 3, at(end), []answer{{yes, 0, 0, false, false}, {yes, 1, end, false, true}}},
		{"ForEver", 3, driver.Instant{}, []answer{{yes, 0, 0, false, false}, {yes, 1, 1000 * time.Hour, true, false}}},
		{"NoEnds", 3, at(end), []answer{{no, 0, 0, false, false}, {no, 0, 0, false, false}, {no, 1, 0, false, true}}},
		{"YesAndNo", 3, at(end), []answer{{yes, 0, 0, false, false}, {no, 1, 0, false, false}, {yes, 2, 0, true, false}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tally := nodes(tt.nodes).Tally()
			for i, a := range tt.answers {
				if a.yes {
					tally.Yes(a.node)
				} else {
					tally.No(a.node)
				}
				if got := tally.Won(at(a.at), tt.end); got != a.won {
					t.Fatalf("after answer %d it is won: %v, want %v", i, got, a.won)
				}
				if got := tally.Ended(at(a.at), tt.end); got != a.ended {
					t.Fatalf("after answer %d the lease has ended: %v, want %v", i, got, a.ended)
				}
			}
		})
	}
}
