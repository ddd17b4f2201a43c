package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/sniblock/snib/lab/arena"
)

// TestLabFitting checks which contestants are judged under faults that not all of them can have.
func TestLabFitting(t *testing.T) {
	for _, tt := range []struct {
		names, faults []string
		plan          string
		want          int    // contestants; 0 for wrong usage
		text          string // of messages and of the error
	}{
		{nil, nil, "", len(labContestants()), ""},
		{nil, []string{"failover", "pause"}, "", len(labContestants()), ""},
		{nil, []string{"store-forget"}, "", 1, "left out: snib-memory on the store none can't have the faults store-forget"},
		{nil, nil, "kill:A:1", len(labContestants()) - 1, "left out: snib-memory can't have the fault kill of the plan"},
		{[]string{"snib", "snib-sqlite"}, []string{"store-forget"}, "", 0, "snib-sqlite on the store file can't have the faults"},
		{nil, []string{"forget-quorum"}, "store-forget:A:1", 0, "can't have"},
	} {
		var messages bytes.Buffer
		l := &labCommand{app: &app{err: &messages}, names: tt.names, faults: tt.faults}
		if tt.plan != "" {
			var err error
			if l.plan, err = arena.ParsePlan(tt.plan); err != nil {
				t.Fatal(err)
			}
		}
		got, err := l.fitting(slices.Clone(labContestants()))
		text := messages.String()
		if err != nil {
			text += err.Error()
		}
		if len(got) != tt.want || (err != nil) != (tt.want == 0) || err != nil && exitCode(err) != exitUsage || !strings.Contains(text, tt.text) {
			t.Errorf("-c %v --fault %v --plan %q: %d contestants, %v, %q, want %d and %q", tt.names, tt.faults, tt.plan, len(got), err, text, tt.want, tt.text)
		}
	}
}
