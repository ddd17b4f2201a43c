package etcdlock_test

import (
	"context"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// These benchmarks compare snib with package concurrency on the same server. Module bench
// compares backends over several processes.

func BenchmarkUncontended(b *testing.B) {
	server := etcdtest.Start(b)
	for _, peer := range peers {
		b.Run(peer.name, func(b *testing.B) {
			cycle := peer.open(b, dial(b, server))
			b.ReportAllocs()
			for b.Loop() {
				cycle()
			}
		})
	}
}

func BenchmarkHandOver(b *testing.B) {
	server := etcdtest.Start(b)
	for _, peer := range peers {
		b.Run(peer.name, func(b *testing.B) {
			done := make(chan struct{})
			// Two clients, as in two processes.
			cycles := [...]func(){peer.open(b, dial(b, server)), peer.open(b, dial(b, server))}
			for _, cycle := range cycles {
				go func() {
					for range b.N {
						cycle()
					}
					done <- struct{}{}
				}()
			}
			<-done
			<-done
		})
	}
}

var peers = []struct {
	name string
	open func(testing.TB, *clientv3.Client) (cycle func())
}{
	{"snib", func(t testing.TB, client *clientv3.Client) func() {
		locker, err := snib.New(newDriver(t, client))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { locker.Close() })
		return func() {
			lock, err := locker.Acquire(context.Background(), "bench")
			if err == nil {
				err = lock.Release()
			}
			if err != nil {
				t.Error(err)
			}
		}
	}},
	{"concurrency", func(t testing.TB, client *clientv3.Client) func() {
		session, err := concurrency.NewSession(client)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { session.Close() })
		return func() {
			mutex := concurrency.NewMutex(session, "bench")
			err := mutex.Lock(context.Background())
			if err == nil {
				err = mutex.Unlock(context.Background())
			}
			if err != nil {
				t.Error(fmt.Errorf("concurrency: %w", err))
			}
		}
	}},
}
