package etcdtest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

func TestStart(t *testing.T) {
	began := time.Now()
	s := etcdtest.Start(t)
	t.Logf("started in %v: %s", time.Since(began), strings.Fields(s.Ctl("version")))
	s.Ctl("put", "key", "value")
	s.Kill()
	s.Restart()
	if got := s.Ctl("get", "key", "--print-value-only"); got != "value\n" {
		t.Errorf("after kill -9 the key is %q, want what was put", got)
	}
	s.RequireLogin()
	if got := s.Ctl("get", "key", "--print-value-only"); got != "value\n" {
		t.Errorf("with a login the key is %q, want what was put", got)
	}
}

func TestStartSecure(t *testing.T) {
	s := etcdtest.StartSecure(t)
	s.Ctl("put", "key", "value")
}

func TestCluster(t *testing.T) {
	began := time.Now()
	c := etcdtest.Cluster(t, 3)
	t.Logf("started in %v", time.Since(began))
	leader := c.Leader()
	leader.Kill()
	next := c.Leader()
	if next == leader {
		t.Fatalf("a member that was killed leads")
	}
	leader.Restart()
	fresh := c.Replace(leader)
	next.Ctl("put", "key", "value")
	livetest.Await(t, "copy", func() error {
		_, err := fresh.TryCtl("get", "key", "--consistency=s")
		return err
	})
	if got := strings.Count(next.Ctl("member", "list"), "started"); got != 3 {
		t.Errorf("%d members have started, want 3", got)
	}
}
