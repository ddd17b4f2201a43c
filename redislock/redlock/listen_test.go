package redlock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/redislock/redlock/internal/quorum"
)

// A hint comes when a majority is free, however the words of releases fall between attempt and sleep.
func TestWatch(t *testing.T) {
	const all, none = quorum.Set(0b11111), quorum.Set(0)
	tests := []struct {
		name          string
		before, after []int // nodes that tell before the attempt is refused, and after
		blocked       quorum.Set
		within        time.Duration // negative: no hint
	}{
		{"Nothing", nil, nil, all, -1},
		{"Majority", nil, []int{0, 1, 2}, all, 0},
		{"BeforeTheSleep", []int{0, 1, 2}, nil, all, 0},
		{"OneBefore", []int{0, 1}, []int{4}, all, 0},
		{"OthersAreFree", nil, []int{3}, 0b11100, 0},
		{"Minority", nil, []int{0, 1}, all, straggle},
		{"MinorityBefore", []int{1}, nil, all, straggle},
		{"TheSameTwice", nil, []int{2, 2, 2}, all, straggle},
		{"FreeAnyway", nil, nil, none, -1}, // the attempt failed for another reason, which no release changes
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l listener
				l.init(&Driver{nodes: make([]*node, 5), params: quorum.Params{Nodes: 5, MaxTTL: time.Second}})
				about := &topic{l: &l, changed: make(chan struct{}), watches: make(map[*watch]bool)}
				l.topics["x"] = about
				w := about.watch()
				for _, node := range tt.before {
					l.hear(node, "x", "7")
				}
				hints := about.sleep(w, tt.blocked)
				for _, node := range tt.after {
					l.hear(node, "y", "1")
					l.hear(node, "x", "7")
				}
				began := time.Now()
				select {
				case crowd := <-hints:
					if took := time.Since(began); tt.within < 0 || took != tt.within || crowd != 7 {
						t.Errorf("a hint of %d after %v, want 7 after %v", crowd, took, tt.within)
					}
				case <-time.After(time.Minute):
					if tt.within >= 0 {
						t.Error("no hint")
					}
				}
			})
		})
	}
}
