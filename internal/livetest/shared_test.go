package livetest

import "testing"

// TestShared checks that tests share one server, which End ends.
func TestShared(t *testing.T) {
	var s Shared[string]
	starts, ends := 0, 0
	start := func(t testing.TB) string {
		starts++
		t.Cleanup(func() { ends++ })
		return "server"
	}
	for range 2 {
		if got := s.Get(t, start); got != "server" {
			t.Errorf("Get = %q", got)
		}
	}
	if starts != 1 || ends != 0 {
		t.Errorf("two tests started %d servers, and ended %d", starts, ends)
	}
	s.End()
	if ends != 1 {
		t.Errorf("End ended %d servers", ends)
	}
}

// TestSharedMissing checks that a server that is not installed skips each test.
func TestSharedMissing(t *testing.T) {
	var s Shared[string]
	for range 2 {
		t.Run("Get", func(t *testing.T) {
			defer func() {
				if !t.Skipped() {
					t.Error("it was not skipped")
				}
			}()
			s.Get(t, func(t testing.TB) string { return Binary(t, "nothing", "no-such-program") })
		})
	}
}
