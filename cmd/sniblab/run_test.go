package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/sniblock/snib/cmd/sniblab/internal/trial"
)

// TestFitting checks which targets are judged under faults that not all of them can have.
func TestFitting(t *testing.T) {
	for _, tt := range []struct {
		names, faults []string
		plan          string
		want          int    // targets; 0 for wrong usage
		text          string // of messages and of the error
	}{
		{nil, nil, "", len(own()), ""},
		{nil, []string{"failover", "pause"}, "", len(own()), ""},
		{nil, []string{"store-forget"}, "", 1, "left out: snib-memory on the store none can't have the faults store-forget"},
		{nil, nil, "kill:A:1", len(own()) - 1, "left out: snib-memory can't have the fault kill of the plan"},
		{[]string{"snib", "snib-sqlite"}, []string{"store-forget"}, "", 0, "snib-sqlite on the store file can't have the faults"},
		{nil, []string{"forget-quorum"}, "store-forget:A:1", 0, "can't have"},
	} {
		var messages bytes.Buffer
		l := &runCommand{errs: &messages, names: tt.names, faults: tt.faults}
		if tt.plan != "" {
			var err error
			if l.plan, err = trial.ParsePlan(tt.plan); err != nil {
				t.Fatal(err)
			}
		}
		got, err := l.fitting(own())
		text := messages.String()
		if err != nil {
			text += err.Error()
			if e, ok := errors.AsType[*exitError](err); !ok || e.code != exitUsage {
				t.Errorf("%v is no wrong usage", err)
			}
		}
		if len(got) != tt.want || (err != nil) != (tt.want == 0) || !strings.Contains(text, tt.text) {
			t.Errorf("-t %v --fault %v --plan %q: %d targets, %v, %q, want %d and %q", tt.names, tt.faults, tt.plan, len(got), err, text, tt.want, tt.text)
		}
	}
}
