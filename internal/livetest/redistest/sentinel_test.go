package redistest_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest/redistest"
)

func TestSentinel(t *testing.T) {
	t.Parallel() // it waits for timers
	tests := []struct {
		name string
		conf []string
		fail func(*redistest.SentinelSetup) *redistest.Node
		mend func(*redistest.Node)
	}{
		{
			name: "Kill",
			fail: (*redistest.SentinelSetup).KillMaster,
			mend: func(n *redistest.Node) { n.Restart() },
		},
		{
			name: "Hang",
			conf: []string{redistest.Password("hush"), redistest.SentinelPassword("quiet")},
			fail: (*redistest.SentinelSetup).HangMaster,
			mend: func(n *redistest.Node) { n.Resume() },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			s := redistest.Sentinel(t, tt.conf...)
			t.Logf("started in %v", time.Since(began))

			master := s.Master()
			master.Must("SET", "key", "value")
			s.WaitForReplicas()

			began = time.Now()
			if old := tt.fail(s); old != master || old.Up() {
				t.Errorf("%s failed, up = %v, want %s, false", old.Addr(), old.Up(), master.Addr())
			}
			next := s.WaitForFailover(master)
			t.Logf("failover after %v", time.Since(began))
			if next == master || !slices.Contains(s.Nodes(), next) || s.Master() != next {
				t.Errorf("master after the failover is %s, and %s when asked again, want the replica", next.Addr(),
					s.Master().Addr())
			}
			if got := next.Must("GET", "key"); got != "value" {
				t.Errorf("GET from the new master = %v, want value", got)
			}

			began = time.Now()
			tt.mend(master)
			s.WaitForReplicas()
			t.Logf("replica again after %v", time.Since(began))
		})
	}
}

func TestSentinelFailover(t *testing.T) {
	t.Parallel() // it waits for timers
	s := redistest.Sentinel(t)
	old := s.Master()
	began := time.Now()
	next := s.Failover()
	t.Logf("failover after %v", time.Since(began))
	if next == old || s.Master() != next {
		t.Errorf("master after the failover of %s is %s, and %s when asked again", old.Addr(), next.Addr(), s.Master().Addr())
	}
	for i, addr := range s.Sentinels() {
		answer, err := redistest.Do(addr, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.MasterName())
		if got, ok := answer.([]any); err != nil || !ok || len(got) != 2 {
			t.Errorf("sentinel %d = %v, %v, want an address", i, answer, err)
		}
	}
}
