package pglock

import "testing"

// TestKeys checks the test vectors of the wire format.
func TestKeys(t *testing.T) {
	for name, want := range map[string]int64{"job": -7504860721436903378, "日本語": -5327152105618399071} {
		if got := NameKey(name); got != want {
			t.Errorf("NameKey(%q) = %d, want %d", name, got, want)
		}
	}
}
