package redislock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// TestSentinelNeedsReplicas checks that a master behind Sentinel that writes without a replica
// is rejected unless the risk is accepted.
func TestSentinelNeedsReplicas(t *testing.T) {
	t.Parallel()
	s := redistest.Sentinel(t)
	d, err := redislock.Open(t.Context(), bySentinel(s))
	if !errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrUnavailable) ||
		!strings.Contains(err.Error(), "min-replicas-to-write") {
		t.Fatalf("Open behind Sentinel without min-replicas-to-write = %v, %v, want ErrInvalid", d, err)
	}
	if d, err = redislock.Open(t.Context(), bySentinel(s), redislock.AllowSplitBrain()); err != nil {
		t.Fatalf("Open with AllowSplitBrain = %v", err)
	}
	d.Close()
	s.Master().Must("CONFIG", "SET", "min-replicas-to-write", 1)
	if d, err = redislock.Open(t.Context(), bySentinel(s)); err != nil {
		t.Fatalf("Open with min-replicas-to-write 1 = %v", err)
	}
	d.Close()
}

// TestOldMasterComesBackEmpty kills a master, and restarts it when another one has been chosen.
// Until the Sentinels demote it, a client that connects to its address finds a master. Here the
// Sentinels are stopped. The old master must grant nothing.
func TestOldMasterComesBackEmpty(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	s := redistest.Sentinel(t)
	used(t, s.Master())
	proxy := livetest.NewProxy(t, s.Master().Addr())
	d := open(t, bySentinel(s))
	old := s.KillMaster()
	master := used(t, s.WaitForFailover(old))
	l, _ := granted(t, begin(t, d, request("job", "at the new master", ttl)), time.Minute, "the request to the new master")
	for _, sentinel := range s.SentinelNodes() {
		sentinel.Hang()
	}
	old.Restart()
	stray := open(t, at(proxy.Addr()), redislock.GraceFloor(30*time.Second)) // a client that does not use Sentinel
	for i := range 10 {
		withheld(t, stray, request("job", fmt.Sprint("stray ", i), 100*time.Millisecond),
			"at the old master, which came back empty")
		if err := renew(t, d, l); err != nil {
			t.Fatalf("Renew at the new master = %v", err)
		}
	}
	if role := info(t, old, "replication", "role"); role != "master" {
		t.Errorf("the old master is a %s, while nobody could demote it", role)
	}
	free(t, l)
	nothingLeft(t, master)
}

// TestSentinelFloor opens a driver without a grace period behind Sentinel. The grace period must be
// 20 s all the same: a replaced master that comes back without its memory must grant nothing before
// the Sentinels have demoted it.
func TestSentinelFloor(t *testing.T) {
	t.Parallel()
	const least = 20 * time.Second // as the backend's documentation says
	tests := []struct {
		name  string
		begin func(*redistest.SentinelSetup) // ends with a master that may have forgotten leases
	}{
		{"Promoted", func(s *redistest.SentinelSetup) {
			old := s.Master()
			s.Failover()
			// The old master grants until a Sentinel demotes it, which also cuts its connections.
			livetest.Await(t, "old master that is a replica", func() error {
				role, err := old.Do("ROLE")
				if err == nil && role.([]any)[0] != "slave" {
					err = fmt.Errorf("it is a %v", role)
				}
				return err
			})
		}},
		{"BackEmpty", func(s *redistest.SentinelSetup) {
			master := s.Master()
			for _, sentinel := range s.SentinelNodes() { // so that it stays the master
				sentinel.Must("SENTINEL", "SET", s.MasterName(), "down-after-milliseconds", 600_000)
			}
			master.Kill()
			master.Restart()
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Sentinel(t)
			used(t, s.Master())
			d := open(t, bySentinel(s), redislock.GraceFloor(0))
			free(t, take(t, d, request("job", "before", least)))
			s.WaitForReplicas()
			began := time.Now()
			tt.begin(s)
			var grace *redislock.GraceError
			req := request("job", "after", time.Second)
			req.NoWait = true
			livetest.Await(t, "answer of the server", func() error {
				l, err := d.Acquire(t.Context(), req)
				if err == nil {
					t.Fatalf("granted %d, with GraceFloor(0) behind Sentinel", token(l))
				}
				if errors.As(err, &grace) {
					return nil
				}
				return err // the server has not answered
			})
			if want := least - time.Since(began); grace.Left < want || grace.Left > least {
				t.Errorf("with GraceFloor(0), nothing is granted for %v, want from %v to %v", grace.Left, want, least)
			}
			used(t, s.Master())
			free(t, take(t, d, request("job", "after", least)))
			nothingLeft(t, s.Master())
		})
	}
}
