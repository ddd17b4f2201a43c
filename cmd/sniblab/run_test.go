package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// TestFitting checks which targets are judged under faults that not all of them can have.
func TestFitting(t *testing.T) {
	for _, tt := range []struct {
		names, faults []string
		want          int    // targets; 0 for wrong usage
		text          string // of messages and of the error
	}{
		{nil, nil, len(own()), ""},
		{nil, []string{"failover", "pause"}, len(own()), ""},
		{nil, []string{"store-forget"}, 1, "left out: snib-memory on the store none can't have the faults store-forget"},
		{nil, []string{"kill"}, len(own()) - 1, "left out: snib-memory on the store none can't have the faults kill"},
		{[]string{"snib", "snib-sqlite"}, []string{"store-forget"}, 0, "snib-sqlite on the store file can't have the faults"},
		{[]string{"snib-redis"}, []string{"forget-quorum"}, 0, "can't have"},
	} {
		var messages bytes.Buffer
		l := &runCommand{errs: &messages, names: tt.names, faults: tt.faults}
		got, err := l.fitting(own())
		text := messages.String()
		if err != nil {
			text += err.Error()
			if e, ok := errors.AsType[*exitError](err); !ok || e.code != exitUsage {
				t.Errorf("%v is no wrong usage", err)
			}
		}
		if len(got) != tt.want || (err != nil) != (tt.want == 0) || !strings.Contains(text, tt.text) {
			t.Errorf("-t %v --fault %v: %d targets, %v, %q, want %d and %q", tt.names, tt.faults, len(got), err, text, tt.want, tt.text)
		}
	}
}
