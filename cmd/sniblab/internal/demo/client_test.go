package demo

import "testing"

// TestTogether counts two clients that believe to hold the lock, of which one is paused at first.
func TestTogether(t *testing.T) {
	s := &Director{}
	a, b := &Client{Name: "A", director: s}, &Client{Name: "B", director: s}
	s.clients = []*Client{a, b}

	a.believe(true)
	a.pause(true)
	b.believe(true)
	if got := s.damage.Together; got != 0 || a.Holds() {
		t.Errorf("while A is paused: together = %d, A holds = %v; want 0 and false", got, a.Holds())
	}
	a.pause(false)
	if got := s.damage.Together; got != 1 || !a.Holds() {
		t.Errorf("when A goes on: together = %d, A holds = %v; want 1 and true", got, a.Holds())
	}
}
