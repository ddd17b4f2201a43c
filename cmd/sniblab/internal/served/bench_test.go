//go:build linux

package served

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/sniblab/internal/store"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/remotelock"
)

const (
	loadClients = 1000 // each with a connection of its own
	loadHolds   = 10   // of each client
	loadPolls   = 5000 // acquisitions that wait
	loadNames   = 500  // that they wait for
	loadStarts  = 50   // acquisitions that begin at a time
)

// BenchmarkLoad measures acquisitions beside 10,000 holds of 1,000 clients, which renew them every
// third of 30 s: through a replica over Redis where 5,000 others wait, and in Redis itself. A lost
// hold fails it.
func BenchmarkLoad(b *testing.B) {
	b.Run("Service", func(b *testing.B) {
		p := store.StartReplica(b, store.NewService(b, startStore(b, "redis"), ""))
		holdAll(b, func() driver.Driver { return client(b, p, nil) })
		defer startWaiters(b, client(b, p, nil))()
		b.ReportMetric(0, "ns/op")
		cpu := p.Stats().CPU
		began := time.Now()
		measureAcquire(b, client(b, p, nil))
		s := p.Stats()
		b.ReportMetric(100*(s.CPU-cpu).Seconds()/time.Since(began).Seconds(), "service-cpu%")
		b.ReportMetric(float64(s.Memory)/(1<<20), "service-MiB")
		b.ReportMetric(float64(s.Goroutines), "service-goroutines")
	})
	b.Run("Store", func(b *testing.B) {
		s := startStore(b, "redis")
		open := func() driver.Driver {
			d, err := s.Open(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = d.Close() })
			return d
		}
		holdAll(b, open)
		measureAcquire(b, open())
	})
}

// BenchmarkPolls measures what 5,000 acquisitions that wait for 500 names cost a replica: over
// HTTP/1.1, and over HTTP/2 with TLS.
func BenchmarkPolls(b *testing.B) {
	b.Run("HTTP1", func(b *testing.B) { measurePolls(b, "", nil) })
	b.Run("HTTP2", func(b *testing.B) {
		certs := b.TempDir()
		secure := livetest.Certify(b, certs)
		measurePolls(b, certs, secure)
	})
}

func measurePolls(b *testing.B, certs string, secure *tls.Config) {
	b.Helper()
	behind := startStore(b, "redis")
	p := store.StartReplica(b, store.NewService(b, behind, certs))
	idle := p.Stats()
	defer startWaiters(b, client(b, p, secure))()
	began, cpu := time.Now(), p.Stats().CPU
	for b.Loop() {
		time.Sleep(30 * time.Second) // the processor time of that is measured; each poll begins anew after 20 s
	}
	s := p.Stats()
	b.ReportMetric(float64(s.Goroutines-idle.Goroutines)/loadPolls, "goroutines/poll")
	b.ReportMetric(float64(s.Memory-idle.Memory)/loadPolls/1024, "KiB/poll")
	b.ReportMetric(float64(s.Live-idle.Live)/loadPolls/1024, "live-KiB/poll")
	b.ReportMetric(100*(s.CPU-cpu).Seconds()/time.Since(began).Seconds(), "service-cpu%")
	b.ReportMetric(float64(storeWaiters(b, behind))/loadNames, "waiters-in-store/name")
}

// startWaiters starts acquisitions that wait until the func is called that it returns.
func startWaiters(b *testing.B, d driver.Driver) (stop func()) {
	b.Helper()
	for i := range loadNames {
		if _, err := d.Acquire(b.Context(), driver.Request{Name: fmt.Sprint(i), ID: longID(fmt.Sprint("holder", i)), TTL: time.Hour}); err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(b.Context())
	var queued, ended sync.WaitGroup
	var told [loadPolls]sync.Once
	queued.Add(loadPolls)
	starting := make(chan struct{}, loadStarts)
	for i := range loadPolls {
		starting <- struct{}{}
		ended.Go(func() {
			req := driver.Request{Name: fmt.Sprint(i % loadNames), ID: longID(fmt.Sprint("waiter", i)), TTL: time.Hour}
			req.OnWait = func(error) { told[i].Do(func() { queued.Done(); <-starting }) }
			_, _ = d.Acquire(ctx, req) // it ends with ctx
		})
	}
	queued.Wait()
	return func() { cancel(); ended.Wait() }
}

// storeWaiters returns how many requests wait in a store.
func storeWaiters(b *testing.B, s store.Store) (n int) {
	b.Helper()
	d, err := s.Open(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	err = d.List(b.Context(), "", func(st driver.Status) bool {
		n += len(st.Waiters)
		return true
	})
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// client returns a driver for a replica, with a connection of its own.
func client(b *testing.B, p *store.Replica, secure *tls.Config) driver.Driver {
	b.Helper()
	d, err := remotelock.Open(b.Context(), remotelock.Config{Servers: []string{urlOf(p.Addr(), secure)}, TLS: secure})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = d.Close() })
	return d
}

// holdAll takes the locks of all clients, which are held until the end. A hold that ends fails b.
func holdAll(b *testing.B, open func() driver.Driver) {
	b.Helper()
	var done atomic.Bool
	b.Cleanup(func() { done.Store(true) })
	clients := make(chan *snib.Locker, loadClients)
	for range loadClients {
		l, err := snib.New(open(), snib.TTL(30*time.Second))
		if err != nil {
			b.Fatal(err)
		}
		clients <- l
	}
	close(clients)
	var workers sync.WaitGroup
	var number atomic.Int64
	for range 32 {
		workers.Go(func() {
			for l := range clients {
				for range loadHolds {
					lock, err := l.Acquire(b.Context(), fmt.Sprint("held/", number.Add(1)))
					if err != nil {
						b.Error(err)
						return
					}
					context.AfterFunc(lock.Context(), func() {
						if !done.Load() {
							b.Errorf("%s: %v", lock.Name(), context.Cause(lock.Context()))
						}
					})
				}
			}
		})
	}
	workers.Wait()
}

// measureAcquire reports how long acquisitions take, of 8 goroutines that pause between them so
// that the service is not saturated.
func measureAcquire(b *testing.B, d driver.Driver) {
	b.Helper()
	l, err := snib.New(d, snib.TTL(30*time.Second))
	if err != nil {
		b.Fatal(err)
	}
	var mu sync.Mutex
	var took []time.Duration
	var workers sync.WaitGroup
	end := time.Now().Add(45 * time.Second) // each hold is renewed several times
	for w := range 8 {
		workers.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				began := time.Now()
				lock, err := l.Acquire(b.Context(), fmt.Sprintf("measured/%d/%d", w, i))
				if err != nil {
					b.Error(err)
					return
				}
				t := time.Since(began)
				mu.Lock()
				took = append(took, t)
				mu.Unlock()
				if err := lock.Release(); err != nil {
					b.Error(err)
				}
				time.Sleep(10 * time.Millisecond) // see above
			}
		})
	}
	workers.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(len(took)), "acquisitions")
}
