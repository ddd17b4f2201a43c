//go:build linux

package served

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/internal/history"
	"github.com/sniblock/snib/internal/livetest"
)

const (
	// worldTTL is the TTL of the holds of workers.
	worldTTL = 2 * time.Second

	// progressBound is how long nobody may get a lock: a TTL, for the hold of a replica that died
	// between the grant and its answer, and what a busy machine needs. It is less than the 15 s after
	// which stores forget a waiter that is silent: nobody may have to wait for that.
	progressBound = worldTTL + 10*time.Second

	// patience is how long the workers have in the end until each of them has got each lock. They pick
	// the locks at random and hold them for up to a TTL, so it is far more than they need.
	patience = time.Minute

	workers = 6
)

// A world has workers that acquire and release locks through two replicas, and logs of what they
// believe.
type world struct {
	t        testing.TB
	replicas []*process
	proxies  [][]*livetest.Proxy // of each worker
	logs     []string
	log      *history.Log         // of the faults
	slack    func() time.Duration // see livetest.Slack
	stop     context.CancelFunc
	running  sync.WaitGroup
	ids      atomic.Int64
}

// A setting is the store of a world, and whether its workers wait over HTTP/2.
type setting struct {
	kind  storeKind
	http2 bool // and TLS
}

func (s setting) String() string {
	if s.http2 {
		return string(s.kind) + "-HTTP2"
	}
	return string(s.kind)
}

// newWorld starts replicas on a store, and workers.
func newWorld(t testing.TB, at setting) *world {
	t.Helper()
	s := startStore(t, at.kind)
	dir, certs := t.TempDir(), ""
	var secure *tls.Config
	if at.http2 {
		certs, secure = dir, livetest.Certify(t, dir)
	}
	w := &world{t: t, slack: livetest.Slack(t), replicas: []*process{newProcess(t, s, certs), newProcess(t, s, certs)}}
	newLog := func(name string) *history.Log {
		path := filepath.Join(dir, name)
		log, err := history.Create(path, name)
		if err != nil {
			t.Fatal(err)
		}
		w.logs = append(w.logs, path)
		return log
	}
	w.log = newLog("faults")
	ctx, cancel := context.WithCancel(t.Context())
	w.stop = cancel
	for i := range workers {
		// Half of the workers prefer the second replica.
		addrs := []string{w.replicas[i%2].job.Addr, w.replicas[1-i%2].job.Addr}
		d, proxies := connect(t, secure, addrs...)
		w.proxies = append(w.proxies, proxies)
		locker, err := snib.New(d, snib.TTL(worldTTL))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { locker.Close() })
		one := &worker{world: w, log: newLog(fmt.Sprint("worker", i)), locker: locker}
		w.running.Go(func() { one.work(ctx) })
	}
	t.Cleanup(func() { cancel(); w.running.Wait() })
	return w
}

// now reads the clock of the logs.
func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // it can't fail for this clock
	return ts.Nano()
}

// fault logs a fault while do lasts.
func (w *world) fault(name string, do func()) {
	id := w.ids.Add(1)
	w.log.Add(history.Event{At: now(), Kind: history.Begin, ID: id, Fault: name})
	do()
	w.log.Add(history.Event{At: now(), Kind: history.End, ID: id, Fault: name})
}

// judge ends the world, and checks what happened.
func (w *world) judge() {
	w.t.Helper()
	w.log.Add(history.Event{At: now(), Kind: history.Heal})
	for end := time.Now().Add(patience); time.Now().Before(end) && history.Waiting(w.events()); {
		time.Sleep(100 * time.Millisecond) // the logs grow slowly
	}
	w.stop()
	w.running.Wait()
	events := w.events()
	r := history.Check(events, history.Rules{Bound: patience})
	w.t.Logf("%d holds, %d lost; faults %v; unexpected errors %v", r.Acquired, r.Lost, r.Faults, r.Odd)
	for _, v := range r.Violations {
		w.t.Errorf("%v", v)
	}
	if r.Acquired < 10*workers {
		w.t.Errorf("only %d holds", r.Acquired)
	}
	for what, n := range r.Odd {
		w.t.Errorf("%d times: %s", n, what)
	}
	w.checkProgress(events)
}

// events reads all logs.
func (w *world) events() []history.Event {
	w.t.Helper()
	events, err := history.Read(w.logs...)
	if err != nil {
		w.t.Fatal(err)
	}
	return events
}

// checkProgress checks that somebody got each lock all the time.
func (w *world) checkProgress(events []history.Event) {
	w.t.Helper()
	names, last, bound := map[string]string{}, map[string]int64{}, progressBound+w.slack()
	for _, e := range events {
		key := fmt.Sprint(e.Worker, e.ID)
		switch e.Kind {
		case history.Call:
			names[key] = e.Name
			if last[e.Name] == 0 {
				last[e.Name] = e.At
			}
		case history.Acquired:
			name := names[key]
			if gap := time.Duration(e.At - last[name]); gap > bound {
				w.t.Errorf("nobody got %s for %v, want %v at most", name, gap, bound)
			}
			last[name] = e.At
		}
	}
}

// A worker acquires and releases locks, and logs what it believes.
type worker struct {
	world  *world
	log    *history.Log
	locker *snib.Locker
}

// kinds are the locks of a world.
func kinds(r *rand.Rand) (history.Event, []snib.Option) {
	switch r.IntN(4) {
	case 0:
		return history.Event{Name: "semaphore", Slots: 2}, []snib.Option{snib.Slots(2)}
	case 1:
		return history.Event{Name: "shared", Shared: true}, []snib.Option{snib.Shared()}
	case 2:
		return history.Event{Name: "shared"}, nil
	}
	return history.Event{Name: "exclusive"}, nil
}

func (w *worker) work(ctx context.Context) {
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	w.log.Add(history.Event{At: now(), Kind: history.Start})
	defer func() { w.log.Add(history.Event{At: now(), Kind: history.Bye}) }()
	for ctx.Err() == nil {
		e, opts := kinds(r)
		e.At, e.Kind, e.ID = now(), history.Call, w.world.ids.Add(1)
		w.log.Add(e)
		waiting, cancel := ctx, context.CancelFunc(func() {})
		if r.IntN(4) == 0 { // it gives up
			waiting, cancel = context.WithTimeout(ctx, time.Duration(r.Int64N(int64(100*time.Millisecond))))
		}
		lock, err := w.locker.With(opts...).Acquire(waiting, e.Name)
		cancel()
		if err != nil {
			odd := waiting.Err() == nil && !errors.Is(err, snib.ErrUnavailable)
			w.log.Add(history.Event{At: now(), Kind: history.Failed, ID: e.ID, Err: err.Error(), Odd: odd})
			continue
		}
		w.hold(r, lock, e.ID)
	}
}

// hold keeps a lock for a while, or until it is lost.
func (w *worker) hold(r *rand.Rand, lock *snib.Lock, id int64) {
	at := now() // before the validity is read, so that its computed end is not too late
	w.log.Add(history.Event{At: at, Kind: history.Acquired, ID: id, Token: lock.Token(), Valid: lock.Validity()})
	stay := time.Duration(r.Int64N(int64(30 * time.Millisecond)))
	if r.IntN(20) == 0 {
		stay = time.Duration(r.Int64N(int64(worldTTL)))
	}
	end := time.NewTimer(stay)
	defer end.Stop()
	tick := time.NewTicker(worldTTL / 10)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			at := now()
			if valid := lock.Validity(); valid > 0 {
				w.log.Add(history.Event{At: at, Kind: history.Valid, ID: id, Valid: valid})
			}
			continue
		case <-lock.Context().Done():
			w.log.Add(history.Event{At: now(), Kind: history.Told, ID: id})
		case <-end.C:
		}
		break
	}
	w.log.Add(history.Event{At: now(), Kind: history.Release, ID: id})
	err := lock.Release()
	text := ""
	if err != nil {
		text = err.Error()
	}
	w.log.Add(history.Event{At: now(), Kind: history.Released, ID: id, Err: text, Lost: errors.Is(err, snib.ErrLost)})
}

// TestKilledReplicas kills one replica after the other under holders and waiters.
func TestKilledReplicas(t *testing.T) {
	testKilledReplicas(t, 6*time.Second)
}

// TestKilledReplicasLong is the same for a minute.
func TestKilledReplicasLong(t *testing.T) {
	livetest.Long(t)
	testKilledReplicas(t, time.Minute)
}

// deathInterval is the time between two deaths. It is less than PostgreSQL needs to notice that a
// waiter is dead.
const deathInterval = 2 * time.Second

func testKilledReplicas(t *testing.T, lasts time.Duration) {
	for _, at := range []setting{{sqlite, false}, {redis, false}, {postgres, false}, {sqlite, true}} {
		t.Run(at.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, at)
			every := time.NewTicker(deathInterval)
			defer every.Stop()
			for i := range int(lasts / deathInterval) {
				<-every.C
				dead := w.replicas[i%2]
				w.fault("kill-replica", func() {
					dead.kill()
					time.Sleep(time.Second / 2) // while it is dead
					dead.start()
				})
			}
			w.judge()
		})
	}
}

// TestNetwork cuts, delays and stalls the way to the replicas, and loses answers.
func TestNetwork(t *testing.T) {
	for _, at := range []setting{{sqlite, false}, {redis, false}, {sqlite, true}} {
		t.Run(at.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, at)
			var request []string // whose answer is lost; in TLS, none can be told from others
			if !at.http2 {
				request = []string{"/v1/acquire"}
			}
			r := rand.New(rand.NewPCG(1, 2))
			every := time.NewTicker(300 * time.Millisecond)
			defer every.Stop()
			for range 20 {
				<-every.C
				proxies := w.proxies[r.IntN(workers)]
				p := proxies[r.IntN(len(proxies))]
				switch r.IntN(5) {
				case 0:
					w.fault("cut", p.Cut)
				case 1:
					w.fault("delay", func() { p.Delay(50*time.Millisecond, 50*time.Millisecond) })
				case 2:
					w.fault("stall", func() { heal := p.Stall(); <-every.C; heal() })
				case 3:
					w.fault("sever", func() { heal := p.Sever(); <-every.C; heal() })
				case 4:
					w.fault("lose-answer", func() { p.LoseAnswers(2, livetest.ThenClose, request...) })
				}
			}
			for _, proxies := range w.proxies {
				for _, p := range proxies {
					p.Heal()
				}
			}
			w.judge()
		})
	}
}
