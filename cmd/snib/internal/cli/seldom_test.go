package cli

import (
	"testing"
	"time"
)

func TestSeldom(t *testing.T) {
	var s seldom
	began := time.Now()
	for _, tt := range []struct {
		subject string
		after   time.Duration
		want    bool
	}{
		{"a", 0, true},
		{"a", 59 * time.Second, false},
		{"b", 59 * time.Second, true},
		{"a", time.Minute, true},
		{"a", 2*time.Minute - 1, false},
		{"b", 3 * time.Minute, true},
	} {
		if got := s.allows(tt.subject, began.Add(tt.after)); got != tt.want {
			t.Errorf("allows(%s) after %v = %t, want %t", tt.subject, tt.after, got, tt.want)
		}
	}
	if len(s.last) != 1 {
		t.Errorf("it remembers %d subjects, want the last one only", len(s.last))
	}
}
