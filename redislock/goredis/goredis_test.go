package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redislock/goredis"
)

// A foreign client has an unknown type.
type foreign struct{ redis.UniversalClient }

func TestNewRefuses(t *testing.T) {
	single := redistest.Single(t, redistest.Password(password))
	cluster := redistest.Cluster(t, redistest.Password(password))
	sentinel := redistest.Sentinel(t, redistest.Password(password))
	free := fmt.Sprintf("127.0.0.1:%d", livetest.FreePort(t))
	hole := livetest.NewProxy(t, single.Addr())
	hole.Sever()
	tests := []struct {
		name    string
		client  redis.UniversalClient
		opts    []redislock.Option
		invalid bool   // whether it matches ErrInvalid
		down    bool   // whether it matches ErrUnavailable: another try may succeed
		want    string // part of the error
	}{
		{name: "Nil", invalid: true, want: "<nil> is neither"},
		{name: "Foreign", client: foreign{dial(t, single.Addr())}, invalid: true, want: "goredis_test.foreign is neither"},
		{
			name: "Ring",
			client: closed(t, redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": single.Addr()},
				Password: password})),
			invalid: true, want: "Ring",
		},
		{
			name: "FailoverClusterClient",
			client: closed(t, redis.NewFailoverClusterClient(&redis.FailoverOptions{
				MasterName: sentinel.MasterName(), SentinelAddrs: sentinel.Sentinels(), Password: password,
			})),
			invalid: true, want: "use redis.NewClient, or redis.NewFailoverClient",
		},
		{
			name: "ClusterClientOfOneServer",
			client: closed(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{single.Addr()},
				Password: password})),
			invalid: true, want: "use redis.NewClient",
		},
		{name: "ClientOfCluster", client: dial(t, cluster.Addrs()[0]), invalid: true, want: "node of a Cluster"},
		{
			name:   "WrongPassword",
			client: closed(t, redis.NewClient(&redis.Options{Addr: single.Addr(), Password: "incorrect-horse"})),
			want:   "WRONGPASS",
		},
		{
			name:   "NoPassword",
			client: closed(t, redis.NewClient(&redis.Options{Addr: single.Addr()})),
			want:   "NOAUTH",
		},
		{
			name: "NoSuchMaster",
			client: closed(t, redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: "nobody", SentinelAddrs: sentinel.Sentinels(), Password: password,
			})),
			want: "no Sentinel knows a master of that name",
		},
		{name: "Nothing", client: dial(t, free), down: true, want: "refused"},
		{
			name:   "NothingOfCluster",
			client: closed(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{free}, Password: password})),
			down:   true, want: "refused",
		},
		{name: "Hole", client: dial(t, hole.Addr()), down: true, want: "deadline"},
		{
			name:   "HoleOfCluster",
			client: closed(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{hole.Addr()}, Password: password})),
			down:   true, want: "deadline",
		},
	}
	slack := livetest.Slack(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			d, err := goredis.New(t.Context(), tt.client, tt.opts...)
			if err == nil {
				d.Close()
				t.Fatal("New = nil, want an error")
			}
			t.Log(err)
			if errors.Is(err, driver.ErrInvalid) != tt.invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New = %v, want it to say %q, and to be invalid: %v", err, tt.want, tt.invalid)
			}
			if errors.Is(err, driver.ErrUnavailable) != tt.down {
				t.Errorf("New = %v, want that it matches ErrUnavailable: %v", err, tt.down)
			}
			if strings.Contains(err.Error(), "horse") {
				t.Errorf("New = %v, which shows the password", err)
			}
			if took := time.Since(start); took > 7*time.Second+slack() {
				t.Errorf("New took %v, want 5s at most", took)
			}
		})
	}
}

// TestClientStaysOpen checks that closing the driver leaves the user's client open.
func TestClientStaysOpen(t *testing.T) {
	client := dial(t, redistest.Single(t, redistest.Password(password)).Used().Addr())
	d := open(t, client)
	l, err := d.Acquire(t.Context(), request("lock", "a"))
	if err != nil {
		t.Fatalf("Acquire = %v", err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("Release = %v", err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("PING after Close = %v, want nil: the client is not ours", err)
	}
}

func request(name, id string) driver.Request {
	return driver.Request{Name: name, ID: id, TTL: 30 * time.Second}
}

// TestFailover kills the master while a lock is held and waited for.
func TestFailover(t *testing.T) {
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		s := redistest.Sentinel(t, redistest.Password(password), redistest.SentinelPassword(password))
		failover(t, func() *redislock.Driver { return open(t, dialSentinel(t, s, nil), redislock.FailoverGrace(false)) },
			s.WaitForReplicas,
			func() { s.WaitForFailover(s.KillMaster()) })
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		c := redistest.Cluster(t, redistest.Password(password))
		slot := c.SlotOf("lock")
		failover(t, func() *redislock.Driver { return openInCluster(t, c, nil) },
			c.WaitUntilWell,
			func() { c.WaitForFailover(slot, c.KillMasterOf(slot)) })
	})
}

func failover(t *testing.T, open func() *redislock.Driver, settle, fail func()) {
	d1, d2 := open(), open()
	first, second := request("lock", "a"), request("lock", "b")
	first.TTL = time.Hour // it outlasts any failover
	held, waiter := livetest.Acquire(t, d1, first), livetest.Waiting(t, d2, second)
	settle()
	fail()
	livetest.Await(t, "renewal at the new master", func() error { // the client has to find it
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := d1.Renew(ctx, []driver.Lease{held})[0].Err
		if errors.Is(err, driver.ErrLost) {
			t.Fatalf("Renew = %v, want nil: the new master has the lease", err)
		}
		return err
	})
	livetest.Release(t, held)
	next := waiter.Get(t)
	if next.Grant().Token <= held.Grant().Token {
		t.Errorf("token %d after %d, want a greater one", next.Grant().Token, held.Grant().Token)
	}
	livetest.Release(t, next)
}

// TestUnawareMaster replaces a master that is cut off from the Sentinels, but not from the driver.
// A waiter must then send its requests to the new master, and listen there.
func TestUnawareMaster(t *testing.T) {
	t.Parallel()
	s := redistest.Sentinel(t, redistest.Password(password), redistest.SentinelPassword(password))
	d := open(t, dialSentinel(t, s, nil), redislock.FailoverGrace(false))
	a, b := request("lock", "a"), request("lock", "b")
	a.TTL = time.Hour
	livetest.Acquire(t, d, a)
	go func() { _, _ = d.Acquire(t.Context(), b) }() // until the test ends
	listens := func(n *redistest.Node) bool { return len(n.Must("PUBSUB", "CHANNELS", "snib.c:*").([]any)) > 0 }
	old := s.Master()
	livetest.Await(t, "subscription", func() error {
		if !listens(old) {
			return errors.New("the master has none")
		}
		return nil
	})
	old.Must("ACL", "SETUSER", "default", "-replicaof", "-slaveof")
	master := s.Failover()
	master.Must("SET", "mark", "of the new master")
	livetest.Await(t, "request and subscription at the new master", func() error {
		st, err := d.Status(t.Context(), "mark")
		if err != nil || len(st.Holders) == 0 || !listens(master) || listens(old) {
			return fmt.Errorf("Status = %+v, %w; subscribed to the new master: %t, to the old one: %t", st, err,
				listens(master), listens(old))
		}
		return nil
	})
	if role := old.Must("ROLE").([]any)[0]; role != "master" {
		t.Errorf("the old master is a %v, and has cut its clients", role)
	}
}

// TestHungSentinels renews a lease for longer than the master goes unchecked, while no Sentinel
// answers: a healthy master must keep its holders.
func TestHungSentinels(t *testing.T) {
	t.Parallel()
	s := redistest.Sentinel(t, redistest.Password(password), redistest.SentinelPassword(password))
	d := open(t, dialSentinel(t, s, nil), redislock.FailoverGrace(false))
	held := livetest.Acquire(t, d, request("lock", "a"))
	for _, sentinel := range s.SentinelNodes() {
		sentinel.Hang()
	}
	start := time.Now()
	livetest.Await(t, "renewal after a check of the master", func() error {
		if r := d.Renew(t.Context(), []driver.Lease{held})[0]; r.Err != nil {
			return r.Err
		}
		if time.Since(start) < 13*time.Second {
			return errors.New("no check has begun yet")
		}
		return nil
	})
}

// TestSavedOnTheSameConnection makes a server forget the scripts, and takes and renews a lock with
// DurableAOF. Each script is followed by a WAITAOF on its own connection, also one that goes again
// with its text.
func TestSavedOnTheSameConnection(t *testing.T) {
	node := redistest.SingleAOF(t, "appendfsync always").Used()
	d := open(t, closed(t, redis.NewClient(&redis.Options{Addr: node.Addr()})), redislock.DurableAOF())
	node.Must("SCRIPT", "FLUSH")
	redistest.CheckSaved(t, node, func() {
		l := livetest.Acquire(t, d, driver.Request{Name: "job", ID: "owner", TTL: time.Minute})
		if r := d.Renew(t.Context(), []driver.Lease{l})[0]; r.Err != nil {
			t.Errorf("Renew = %v", r.Err)
		}
		if err := d.Close(); err != nil { // it ends what the driver does in the background
			t.Error(err)
		}
	})
}
