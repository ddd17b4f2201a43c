package redlock

import (
	"testing"
)

// Requests for one lock gather while a node hangs, and one call serves them. Each must do what
// it would have done alone.

// A raise writes the key anew. It must not undo the extension behind it, which would count as a
// vote for longer than the key exists.
func TestBatchKeepsTheLastTTL(t *testing.T) {
	tests := []struct {
		name  string
		first string // in a call of its own
		batch []string
	}{
		{"RaisedAndExtended", "a one~ 1000 5 " + rest, []string{"r one~ 9", "e one~ 60000 9 " + rest}},
		{"TakenTwice", "y: f one~ 0", []string{"a one~ 1000 5 " + rest, "a one~ 60000 5 " + rest}},
		{"TakenAgainAndExtended", "y: f one~ 0", []string{"e one~ 1000 5 " + rest, "e one~ 60000 5 " + rest}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newScriptServer(t, true)
			b.run(tt.first)
			answers := b.run(tt.batch...)
			if left, _ := b.server.Must("PTTL", "x").(int64); left < 50000 {
				t.Errorf("%q = %q, and the key lasts %d ms, want about 60000", tt.batch, answers, left)
			}
		})
	}
}

// A key that is not a string is a foreign key. It is neither deleted nor given an expiry, and
// all requests that rest on having taken it are refused.
func TestBatchSparesAliens(t *testing.T) {
	for _, batch := range [][]string{
		{"e one~ 60000 7 " + rest, "e one~ 60000 7 " + rest},
		{"e one~ 60000 7 " + rest, "f one~ 0"},
		{"e one~ 60000 7 " + rest, "f one~ 60000"},
		{"a one~ 60000 7 " + rest, "r one~ 9"},
		{"a one~ 60000 7 " + rest, "f one~ 0", "a two~ 60000 7 " + rest},
	} {
		b := newScriptServer(t, true)
		b.server.Must("RPUSH", "x", "a")
		for i, got := range b.run(batch...) {
			if got[0] == 'g' || batch[i][0] == 'e' && got == "o" && i == len(batch)-1 {
				t.Errorf("%q: request %d = %q on a list", batch, i, got)
			}
		}
		if kind, left := b.server.Must("TYPE", "x"), b.server.Must("PTTL", "x"); kind != "list" || left != int64(-1) {
			t.Errorf("%q: the list is a %v now, which lasts %v ms", batch, kind, left)
		}
	}
}
