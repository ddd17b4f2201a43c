package redislock_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// TestSubscriptionOnFullDisk ends a subscription while the server's disk is full. Such a server
// answers PING with an error. After UNSUBSCRIBE rueidis sends a PING, and panics if that fails.
func TestSubscriptionOnFullDisk(t *testing.T) {
	t.Parallel()
	const key = "{x}"
	t.Run("Single", func(t *testing.T) {
		shim := livetest.NewShim(t, "redis")
		node := redistest.Single(livetest.WithEnv(t, shim.Env()...), "appendonly yes")
		endSubscription(t, shim, node, key, false, node.Addr())
	})
	t.Run("Cluster", func(t *testing.T) {
		shim := livetest.NewShim(t, "redis")
		cluster := redistest.Cluster(livetest.WithEnv(t, shim.Env()...), "appendonly yes")
		sharded := redistest.AtLeast(t, 7, 0)
		endSubscription(t, shim, cluster.MasterOf(cluster.SlotOf(key)), key, sharded, cluster.Addrs()...)
	})
}

func endSubscription(t *testing.T, shim *livetest.Shim, node *redistest.Node, key string, sharded bool,
	addrs ...string) {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: addrs, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn := redislock.ConnOf(client)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- conn.Subscribe(ctx, "snib.c:"+key, sharded, func() { ready <- struct{}{} }, func(string) {})
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	shim.FillDisk(true)
	defer shim.FillDisk(false)
	node.AwaitFullDisk(key)
	cancel()
	<-ended
	for range 3 { // the answers to commands are those to these commands
		reply := conn.Eval(t.Context(), redislock.Call{Command: "EXISTS", Keys: []string{key + "missing"}})[0]
		if reply.Err != nil || strings.Join(reply.Lines, " ") != "0" {
			t.Errorf("EXISTS = %q, %v, want 0", reply.Lines, reply.Err)
		}
	}
}
