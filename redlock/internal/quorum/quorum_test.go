package quorum_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redlock/internal/quorum"
)

func TestCheck(t *testing.T) {
	tests := []struct {
		nodes int
		want  string // in the error; empty for none
	}{
		{3, ""},
		{5, ""},
		{15, ""},
		{0, "at least 3 nodes, got 0"},
		{1, "at least 3 nodes, got 1"},
		{2, "at least 3 nodes, got 2"},
		{-3, "at least 3 nodes, got -3"},
		{4, "odd number of nodes, got 4: as many may fail of 3"},
		{17, "at most 15 nodes, got 17"},
	}
	for _, tt := range tests {
		err := nodes(tt.nodes).Check()
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%d nodes: %v", tt.nodes, err)
		case tt.want != "" && (!errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%d nodes: error %v, want ErrInvalid with %q", tt.nodes, err, tt.want)
		}
	}
}

// TestTimes checks that the limits do their work, whatever clocks do within them. A lease ends
// by its holder's clock before it ends on a node, and it has ended for everybody before a node
// that forgot it votes again.
func TestTimes(t *testing.T) {
	const fast, slow = 1.005, 1 / 1.005 // clocks whose rates differ by one part in a hundred
	for _, ttl := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second, time.Hour} {
		validity := quorum.Validity(ttl)
		if validity <= 0 || validity < ttl*8/10 {
			t.Errorf("of a lease of %v, %v are left", ttl, validity)
		}
		if held, kept := float64(validity)/slow, float64(ttl)/fast; held >= kept {
			t.Errorf("a lease of %v lasts %v by a slow clock of its holder, and %v by a fast one of the node", ttl,
				time.Duration(held), time.Duration(kept))
		}
		p := quorum.Params{Nodes: 3, MaxTTL: ttl}
		if waited, kept := float64(p.Quarantine())/fast, float64(ttl)/slow; waited <= kept {
			t.Errorf("with leases of %v, an agent with a fast clock waits %v, when by a slow one they last %v", ttl,
				time.Duration(waited), time.Duration(kept))
		}
	}
}

func TestSet(t *testing.T) {
	s := set(0, 3, 15)
	if got := slices.Collect(s.All()); !slices.Equal(got, []int{0, 3, 15}) {
		t.Errorf("All = %v, want [0 3 15]", got)
	}
	for range s.All() {
		break // must not go on
	}
	if s.Len() != 3 || !s.Has(3) || s.Has(2) {
		t.Errorf("Len = %d, Has(3) = %v, Has(2) = %v, want 3, true and false", s.Len(), s.Has(3), s.Has(2))
	}
}
