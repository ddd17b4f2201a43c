package zktest_test

import (
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest/zktest"
)

func TestSingle(t *testing.T) {
	began := time.Now()
	s := zktest.Single(t)
	t.Logf("started in %v", time.Since(began))
	if got, err := s.Mode(); got != "standalone" || err != nil {
		t.Errorf("Mode = %q, %v; want standalone", got, err)
	}
	s.Kill()
	if got, err := s.Mode(); err == nil {
		t.Errorf("Mode of a server that was killed = %q, want an error", got)
	}
	s.Restart()
}

func TestEnsemble(t *testing.T) {
	began := time.Now()
	e := zktest.Ensemble(t)
	t.Logf("started in %v", time.Since(began))
	first := e.Leader()
	if got := len(e.Followers()); got != 2 {
		t.Errorf("%d followers beside the leader, want 2", got)
	}
	first.Kill()
	second := e.Leader()
	t.Logf("leads again after %v", time.Since(began))
	if first == second {
		t.Error("the leader is the server that was killed")
	}
	first.Restart()
	if got, err := first.Mode(); got != "follower" || err != nil {
		t.Errorf("Mode of the former leader = %q, %v; want follower", got, err)
	}
}
