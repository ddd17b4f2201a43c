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

// TestSentinelNeedsReplicas refuses a master behind Sentinel that writes without a replica, unless the risk is accepted.
func TestSentinelNeedsReplicas(t *testing.T) {
	t.Parallel()
	s := redistest.Sentinel(t)
	d, err := redislock.Open(bySentinel(s))
	if !errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "min-replicas-to-write") {
		t.Fatalf("Open behind Sentinel without min-replicas-to-write = %v, %v, want ErrInvalid", d, err)
	}
	if d, err = redislock.Open(bySentinel(s), redislock.AllowSplitBrain()); err != nil {
		t.Fatalf("Open with AllowSplitBrain = %v", err)
	}
	d.Close()
	s.Master().Must("CONFIG", "SET", "min-replicas-to-write", 1)
	if d, err = redislock.Open(bySentinel(s)); err != nil {
		t.Fatalf("Open with min-replicas-to-write 1 = %v", err)
	}
	d.Close()
}

// TestOldMasterComesBackEmpty kills a master, and starts it again without its memory when another was chosen. A client that had
// talked to it by its address finds a master: it grants nothing before the Sentinels have told it what it is, whatever floor was asked for.
func TestOldMasterComesBackEmpty(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	s := redistest.Sentinel(t)
	used(t, s.Master())
	for _, sentinel := range s.SentinelNodes() { // who takes their time, as they do by default
		if _, err := sentinel.Do("SENTINEL", "DEBUG", "PUBLISH-PERIOD", 2000, "INFO-PERIOD", 10000); err != nil {
			t.Skipf("these Sentinels can't be slowed down: %v", err)
		}
	}
	proxy := livetest.NewProxy(t, s.Master().Addr())
	d := open(t, bySentinel(s), redislock.GraceFloor(0))
	old := s.KillMaster()
	master := s.WaitForFailover(old)
	l, _ := granted(t, begin(t, d, ask("job", "at the new master", ttl)), time.Minute, "who asks the new master")
	old.Restart()
	stray := openStray(t, proxy)
	role := func() string { return info(t, old, "replication", "role") }
	asked := 0
	for role() == "master" {
		req := ask("job", fmt.Sprint("stray ", asked), 100*time.Millisecond)
		req.NoWait = true
		if got, err := stray.Acquire(t.Context(), req); err == nil && role() == "master" {
			t.Fatalf("the old master grants %d, while %s holds %d at the new one", token(got), "another", token(l))
		}
		if err := renew(t, d, l); err != nil {
			t.Fatal(err)
		}
		asked++
		time.Sleep(50 * time.Millisecond) // between two tries
	}
	t.Logf("it was asked %d times before it was demoted", asked)
	if asked == 0 {
		t.Skip("it was demoted at once")
	}
	if err := renew(t, d, l); err != nil {
		t.Errorf("Renew at the new master = %v", err)
	}
	free(t, l)
	nothingLeft(t, master)
}

// openStray opens a driver with the default floor by way of a proxy, as one that knows nothing of Sentinels.
func openStray(t *testing.T, p *livetest.Proxy) *redislock.Driver {
	t.Helper()
	var d *redislock.Driver
	livetest.Await(t, "driver on the old master", func() (err error) {
		d, err = redislock.Open(at(p.Addr()))
		return err
	})
	t.Cleanup(func() { d.Close() })
	return d
}
