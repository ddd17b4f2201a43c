package quorum_test

import (
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redlock/internal/quorum"
)

func TestTally(t *testing.T) {
	const end = time.Second
	type answer struct {
		kind  byte // y for yes, n for no, a for away
		node  int
		at    time.Duration
		want  quorum.Verdict
		ended bool
	}
	const (
		open   = quorum.Open
		won    = quorum.Won
		failed = quorum.Failed
	)
	tests := []struct {
		name    string
		nodes   int
		end     driver.Instant
		answers []answer
	}{
		{"Majority", 5, at(end), []answer{{'y', 0, 0, open, false}, {'y', 2, 0, open, false}, {'y', 4, end - 1, won, false}}},
		{"SameTwice", 3, at(end), []answer{{'y', 0, 0, open, false}, {'y', 0, 0, open, false}}},
		{"LateIsNothing", 3, at(end), []answer{{'y', 0, 0, open, false}, {'y', 1, end, failed, true}}},
		{"ForEver", 3, driver.Instant{}, []answer{{'y', 0, 0, open, false}, {'y', 1, 1000 * time.Hour, won, false}}},
		{"NoEnds", 3, at(end), []answer{{'n', 0, 0, open, false}, {'n', 1, 0, failed, true}}},
		// The nodes may have executed the request.
		{"AwayFails", 3, at(end), []answer{{'a', 0, 0, open, false}, {'a', 1, 0, failed, false}}},
		{"NoAndAway", 3, at(end), []answer{{'n', 0, 0, open, false}, {'a', 1, 0, failed, false}}},
		{"AwayTwice", 5, at(end), []answer{{'a', 0, 0, open, false}, {'a', 0, 0, open, false}, {'a', 0, 0, open, false}}},
		{"AwayAndThenYes", 3, at(end), []answer{{'a', 0, 0, open, false}, {'y', 0, 0, open, false}, {'n', 1, 0, open, false},
			{'y', 2, 0, won, false}}},
		{"AwayAndThenNo", 3, at(end), []answer{{'a', 0, 0, open, false}, {'n', 0, 0, open, false},
			{'n', 1, 0, failed, true}}},
		{"YesAndThenAway", 3, at(end), []answer{{'y', 0, 0, open, false}, {'a', 0, 0, open, false}, {'y', 1, 0, won, false}}},
		{"NoAndThenAway", 5, at(end), []answer{{'n', 0, 0, open, false}, {'a', 0, 0, open, false}, {'a', 1, 0, open, false}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tally := nodes(tt.nodes).Tally(tt.end)
			for i, a := range tt.answers {
				count := map[byte]func(int, driver.Instant) quorum.Verdict{'y': tally.Yes, 'n': tally.No, 'a': tally.Away}[a.kind]
				if got := count(a.node, at(a.at)); got != a.want {
					t.Fatalf("after answer %d: %v, want %v", i, got, a.want)
				}
				if got := tally.Verdict(at(a.at)); got != a.want {
					t.Fatalf("asked after answer %d: %v, want %v", i, got, a.want)
				}
				if got := tally.Ended(at(a.at)); got != a.ended {
					t.Fatalf("after answer %d the lease has ended: %v, want %v", i, got, a.ended)
				}
			}
		})
	}
}
