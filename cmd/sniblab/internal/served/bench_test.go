//go:build linux

package served

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/sniblab/internal/store"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

const (
	loadHolders = 1000 // clients that hold locks, each with a connection of its own
	loadHolds   = 10   // of each of them
	loadPolls   = 5000 // acquisitions that wait
	loadNames   = 500  // that they wait for
	loadStarts  = 50   // acquisitions that begin at a time
)

// BenchmarkLoad measures acquisitions beside 10,000 holds of 1,000 clients, which renew them every
// third of 30 s, and 5,000 acquisitions that wait: at the replica that serves all of them, and past
// it, in its Redis. The same goroutines make both in turn, and a process of its own makes the load.
// A lost hold fails it. Each round takes a minute and logs what the replica uses, so -benchtime 30x
// shows whether its memory grows.
func BenchmarkLoad(b *testing.B) {
	behind := startStore(b, "redis")
	p := store.StartReplica(b, store.NewService(b, behind, ""))
	through := store.Store{Kind: "served", Addrs: []string{p.Addr()}}
	crowd := startClients(b, clients{Store: through, Holders: loadHolders})
	service, direct := &measurement{locker: openLocker(b, through)}, &measurement{locker: openLocker(b, behind)}
	for cpu := p.Stats().CPU; b.Loop(); {
		began := time.Now()
		acquireInTurn(b, service, direct)
		s := p.Stats()
		b.Logf("after %v: %d KiB in memory, %d KiB live, %d goroutines", b.Elapsed().Round(time.Second),
			s.Memory>>10, s.Live>>10, s.Goroutines)
		b.Logf("%.0f%% of a processor; p99 %v, in the store %v", 100*(s.CPU-cpu).Seconds()/time.Since(began).Seconds(),
			service.quantile(99), direct.quantile(99))
		cpu = s.CPU
	}
	b.ReportMetric(float64(p.Stats().Memory)/(1<<20), "MiB")
	b.ReportMetric(0, "ns/op")
	crowd.End()
	crowd.Wait()
	service.report(b, "service")
	direct.report(b, "store")
	b.ReportMetric(float64(service.quantile(99))/float64(direct.quantile(99)), "p99/store-p99")
}

// BenchmarkPolls measures what 5,000 acquisitions that wait for 500 names cost a replica: over
// HTTP/1.1, and over HTTP/2 with TLS.
func BenchmarkPolls(b *testing.B) {
	b.Run("HTTP1", func(b *testing.B) { measurePolls(b, "") })
	b.Run("HTTP2", func(b *testing.B) {
		certs := b.TempDir()
		livetest.Certify(b, certs)
		measurePolls(b, certs)
	})
}

func measurePolls(b *testing.B, certs string) {
	b.Helper()
	behind := startStore(b, "redis")
	p := store.StartReplica(b, store.NewService(b, behind, certs))
	idle := p.Stats()
	startClients(b, clients{Store: store.Store{Kind: "served", Addrs: []string{p.Addr()}, Certs: certs}})
	began, cpu := time.Now(), p.Stats().CPU
	for b.Loop() {
		time.Sleep(30 * time.Second) // the processor time of that is measured; each poll begins anew after 10 s
	}
	s := p.Stats()
	b.ReportMetric(float64(s.Goroutines-idle.Goroutines)/loadPolls, "goroutines/poll")
	b.ReportMetric(float64(s.Memory-idle.Memory)/loadPolls/1024, "KiB/poll")
	b.ReportMetric(float64(s.Live-idle.Live)/loadPolls/1024, "live-KiB/poll")
	b.ReportMetric(100*(s.CPU-cpu).Seconds()/time.Since(began).Seconds(), "service-cpu%")
	b.ReportMetric(float64(storeWaiters(b, behind))/loadNames, "waiters-in-store/name")
}

// A job is what another process of this test program does: it is a replica, or the clients of one.
type job struct {
	store.Service
	Clients *clients
}

func (j job) do(ctx context.Context) error {
	if j.Clients != nil {
		return j.Clients.run(ctx)
	}
	return j.Serve(ctx)
}

// The clients are the load of a replica, made by one process.
type clients struct {
	Store   store.Store // the replica
	Holders int
}

// startClients starts clients, and returns when all of them have or wait for their locks.
func startClients(b *testing.B, c clients) *livetest.Child {
	b.Helper()
	child := livetest.StartChild(b, job{Clients: &c})
	child.Expect("ready")
	return child
}

// run holds locks, and waits for others, until ctx is done. It fails if a hold is lost.
func (c clients) run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var starting sync.WaitGroup
	turns := make(chan struct{}, loadStarts)
	start := func(do func() error) {
		turns <- struct{}{}
		starting.Go(func() {
			defer func() { <-turns }()
			if err := do(); err != nil {
				fail(err)
			}
		})
	}
	for n := range c.Holders {
		start(func() error { return c.hold(ctx, n, fail) })
	}
	d, err := c.Store.Open(ctx)
	if err != nil {
		return err
	}
	for i := range loadNames {
		start(func() error { return holdForAnHour(ctx, d, fmt.Sprint(i)) })
	}
	starting.Wait()
	for i := range loadPolls {
		start(func() error { return startWaiter(ctx, d, i, fail) })
	}
	starting.Wait()
	livetest.Say("ready")
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// hold takes the locks of one client, which are held until ctx is done. If one is lost, fail is
// called.
func (c clients) hold(ctx context.Context, number int, fail func(error)) error {
	l, err := c.Store.Open(ctx)
	if err != nil {
		return err
	}
	locker, err := snib.New(l, snib.TTL(30*time.Second))
	for i := range loadHolds {
		if err != nil {
			return err
		}
		var lock *snib.Lock
		if lock, err = locker.Acquire(ctx, fmt.Sprintf("held/%d/%d", number, i)); err == nil {
			context.AfterFunc(lock.Context(), func() { fail(context.Cause(lock.Context())) })
		}
	}
	return err
}

// holdForAnHour takes a lock that others wait for.
func holdForAnHour(ctx context.Context, d driver.Driver, name string) error {
	_, err := d.Acquire(ctx, driver.Request{Name: name, ID: longID("holder" + name), TTL: time.Hour})
	return err
}

// startWaiter starts an acquisition that waits until ctx is done, and returns when it is queued. If
// it ends before, fail is called.
func startWaiter(ctx context.Context, d driver.Driver, number int, fail func(error)) error {
	queued := make(chan struct{})
	req := driver.Request{Name: fmt.Sprint(number % loadNames), ID: longID(fmt.Sprint("waiter", number)), TTL: time.Hour}
	tell := sync.OnceFunc(func() { close(queued) })
	req.OnWait = func(error) { tell() }
	go func() {
		defer tell()
		if _, err := d.Acquire(ctx, req); ctx.Err() == nil {
			fail(fmt.Errorf("a waiter has ended: %w", err))
		}
	}()
	<-queued
	return context.Cause(ctx)
}

// A measurement is how long acquisitions took.
type measurement struct {
	locker *snib.Locker

	mu   sync.Mutex
	took []time.Duration
}

// openLocker returns a Locker on a store.
func openLocker(b *testing.B, s store.Store) *snib.Locker {
	b.Helper()
	d, err := s.Open(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	l, err := snib.New(d, snib.TTL(30*time.Second))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() }) // what it uses ends, too
	return l
}

// acquireInTurn takes locks for a minute, by 8 goroutines that pause in between, so that the
// service is not saturated.
func acquireInTurn(b *testing.B, all ...*measurement) {
	b.Helper()
	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			for end, i := time.Now().Add(time.Minute), 0; time.Now().Before(end); i++ {
				if err := all[i%len(all)].acquire(b.Context(), fmt.Sprintf("measured/%d/%d", w, i)); err != nil {
					b.Error(err)
					return
				}
				time.Sleep(10 * time.Millisecond) // see above
			}
		})
	}
	workers.Wait()
}

// acquire takes and releases one lock.
func (m *measurement) acquire(ctx context.Context, name string) error {
	began := time.Now()
	lock, err := m.locker.Acquire(ctx, name)
	if err != nil {
		return err
	}
	m.note(time.Since(began))
	return lock.Release()
}

func (m *measurement) note(took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took = append(m.took, took)
}

// quantile returns how long the percentage of acquisitions took at most.
func (m *measurement) quantile(percent int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.Sort(m.took)
	return m.took[len(m.took)*percent/100]
}

func (m *measurement) report(b *testing.B, name string) {
	b.ReportMetric(float64(m.quantile(50).Microseconds()), name+"-p50-µs")
	b.ReportMetric(float64(m.quantile(99).Microseconds()), name+"-p99-µs")
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
