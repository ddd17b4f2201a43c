//go:build linux

package nemesis

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/sniblab/internal/store"
	"github.com/sniblock/snib/cron"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/history"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/leader"
)

// now reads the clock of the logs.
func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // it can't fail for this clock
	return ts.Nano()
}

// A Job is the work of a worker process: it acquires and releases locks in every mode that its
// store supports, and logs what it believes.
type Job struct {
	store.Service // if it has an address to listen at, the process is a replica, and no worker

	Name string
	Log  string
	Seed uint64
	Calm string // a file that exists after the heal: then holds are short

	Mixed   bool // some holds have a different TTL
	Abandon bool // some lost holds are released only at the end
	// It sends fewer requests, so that no other request tells it of a loss, and
	// holds locks longer.
	Quiet bool
	Deaf  bool // it ignores losses: a negative control
	Mute  bool // its driver reports a loss only at the next renewal: a negative control
	// Its driver confirms renewals without asking the store: a negative control.
	Stale bool
}

const (
	// ttl is the TTL of most holds, and of sessions where possible. ZooKeeper's can't be as short.
	ttl       = 2 * time.Second
	zkTimeout = 4 * time.Second

	// shortTTL and longTTL are the TTLs of some holds if leases have their own TTL.
	shortTTL = ttl / 2
	longTTL  = 4 * ttl

	minHold        = 300 * time.Millisecond
	lockDelay      = 500 * time.Millisecond
	interval       = 2 * time.Second // of the schedule: etcd may take half a second on a busy machine
	sampleInterval = 50 * time.Millisecond
	lateThreshold  = 40 * time.Millisecond
)

// newStore returns a store with the options of all set-ups.
func newStore(kind string, addrs ...string) store.Store {
	s := store.Store{
		Kind: kind, Addrs: addrs, GraceFloor: longTTL, MaxTTL: longTTL, Timeout: 100 * time.Millisecond, Session: ttl,
	}
	if strings.HasPrefix(kind, "zk") {
		s.Session = zkTimeout
	}
	return s
}

// work does the job until ctx is done. Before it returns, all locks are released.
func (j Job) work(ctx context.Context) error {
	if j.Listen != "" {
		return j.Serve(ctx)
	}
	log, err := history.Create(j.Log, j.Name)
	if err != nil {
		return err
	}
	d, err := j.Store.Open(ctx)
	for ; err != nil; d, err = j.Store.Open(ctx) {
		if errors.Is(err, driver.ErrInvalid) {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond): // the store is unavailable
		case <-ctx.Done():
			return err
		}
	}
	if j.Mute || j.Stale {
		d = mute{d}
	}
	if j.Stale {
		d = stale{d}
	}
	opts := []snib.Option{snib.TTL(max(ttl, d.Info().SessionTTL))}
	locker, err := snib.New(d, opts...)
	if err != nil {
		return err
	}
	w := &worker{Job: j, log: log, locker: locker}
	log.Add(history.Event{At: now(), Kind: history.Start})
	livetest.Say("ready")
	stop := w.watchLateness()
	w.run(ctx)
	for _, lock := range w.abandoned {
		_ = lock.Release() // it is lost
	}
	err = locker.Close()
	stop()
	log.Add(history.Event{At: now(), Kind: history.Bye})
	return err
}

type worker struct {
	Job
	log    *history.Log
	locker *snib.Locker
	ids    atomic.Int64

	mu        sync.Mutex
	abandoned []*snib.Lock
}

// watchLateness logs when the machine did not schedule this process.
func (w *worker) watchLateness() (stop func()) {
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		const tick = 10 * time.Millisecond
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		last := now()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			if at := now(); time.Duration(at-last) > lateThreshold {
				w.log.Add(history.Event{At: last, Kind: history.Late, Until: at})
				last = now()
			} else {
				last = at
			}
		}
	})
	return func() { close(done); watching.Wait() }
}

// A lockMode is a way to lock a name.
type lockMode struct {
	event    history.Event // the common part of its events
	opts     []snib.Option
	meanHold time.Duration // the mean of holds, more of which are long then; 0 for the default
}

// run runs all goroutines until ctx is done.
func (w *worker) run(ctx context.Context) {
	info := w.locker.Info()
	var running sync.WaitGroup
	loop := func(body func(ctx context.Context, r *rand.Rand)) {
		seed := uint64(w.ids.Add(1))
		running.Go(func() {
			r := rand.New(rand.NewPCG(w.Seed, seed))
			for ctx.Err() == nil {
				body(ctx, r)
				w.pause(ctx, r)
			}
		})
	}
	plain := lockMode{event: history.Event{Name: "plain"}}
	mixed := []lockMode{
		plain,
		{event: plain.event, opts: []snib.Option{snib.TTL(shortTTL)}},
		{event: plain.event, opts: []snib.Option{snib.TTL(longTTL)}, meanHold: longTTL},
	}
	for range 2 { // two, so that there are local hand-overs
		loop(func(ctx context.Context, r *rand.Rand) {
			if w.Mixed {
				w.cycle(ctx, r, mixed[r.IntN(len(mixed))])
			} else {
				w.cycle(ctx, r, plain)
			}
		})
	}
	if info.Fair {
		fair := lockMode{event: history.Event{Name: "fair"}, opts: []snib.Option{snib.Fair()}}
		loop(func(ctx context.Context, r *rand.Rand) { w.cycle(ctx, r, fair) })
	}
	if info.Slots {
		slots := lockMode{event: history.Event{Name: "slots", Slots: 2}, opts: []snib.Option{snib.Slots(2)}}
		loop(func(ctx context.Context, r *rand.Rand) { w.cycle(ctx, r, slots) })
	}
	if info.Shared {
		reader := lockMode{event: history.Event{Name: "shared", Shared: true}, opts: []snib.Option{snib.Shared()}}
		writer := lockMode{event: history.Event{Name: "shared"}}
		loop(func(ctx context.Context, r *rand.Rand) {
			if r.IntN(4) > 0 {
				w.cycle(ctx, r, reader)
			} else {
				w.cycle(ctx, r, writer)
			}
		})
	}
	least := lockMode{event: history.Event{Name: "minhold", MinHold: minHold}, opts: []snib.Option{snib.MinHold(minHold)}}
	loop(func(ctx context.Context, r *rand.Rand) { w.cycle(ctx, r, least) })
	if info.Tenure == driver.TenureLease || info.SessionTTL > lockDelay {
		delayed := lockMode{event: history.Event{Name: "delay", Delay: lockDelay}, opts: []snib.Option{snib.LockDelay(lockDelay)}}
		loop(func(ctx context.Context, r *rand.Rand) { w.cycle(ctx, r, delayed) })
	}
	loop(w.lead)
	loop(w.runTick)
	running.Wait()
}

// pause waits for a random time between two holds, which is at most three times its mean.
func (w *worker) pause(ctx context.Context, r *rand.Rand) {
	mean := 80 * time.Millisecond
	if w.Quiet {
		mean = 800 * time.Millisecond
	}
	select {
	case <-time.After(time.Duration(min(3, r.ExpFloat64()) * float64(mean))):
	case <-ctx.Done():
	}
}

// cycle acquires a lock, holds it for a while, and releases it. Some attempts give up early, but
// not after the heal: then each worker must get each lock.
func (w *worker) cycle(ctx context.Context, r *rand.Rand, m lockMode) {
	e := m.event
	e.ID = w.ids.Add(1)
	acquire := w.locker.With(m.opts...).Acquire
	waiting, cancel := ctx, func() {}
	switch impatience := r.IntN(8); {
	case w.calm():
	case impatience == 0:
		acquire = w.locker.With(m.opts...).TryAcquire
	case impatience == 1:
		waiting, cancel = context.WithTimeout(ctx, time.Duration(r.Int64N(int64(400*time.Millisecond))))
	}
	defer cancel()
	e.At, e.Kind = now(), history.Call
	w.log.Add(e)
	lock, err := acquire(waiting, e.Name)
	if err != nil {
		w.failed(ctx, e.ID, err)
		return
	}
	w.hold(r, lock, e.ID, m)
}

// failed logs that an acquisition failed.
func (w *worker) failed(ctx context.Context, id int64, err error) {
	expected := errors.Is(err, snib.ErrHeld) || errors.Is(err, snib.ErrUnavailable) || errors.Is(err, snib.ErrLost) ||
		errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil
	w.log.Add(history.Event{At: now(), Kind: history.Failed, ID: id, Err: err.Error(), Lost: errors.Is(err, snib.ErrLost),
		Odd: !expected})
}

// acquired logs a hold. It reads the clock before the validity, so that the
// computed end is not too late.
func (w *worker) acquired(lock *snib.Lock, id int64) {
	at := now()
	w.log.Add(history.Event{At: at, Kind: history.Acquired, ID: id, Token: lock.Token(), Valid: lock.Validity()})
}

// hold keeps a lock for a random time, or until it is lost, and then releases it.
func (w *worker) hold(r *rand.Rand, lock *snib.Lock, id int64, m lockMode) {
	long, often := 2*ttl, 12
	if m.meanHold > 0 {
		long, often = m.meanHold, 3
	}
	lost := lock.Lost()
	if w.Deaf {
		lost, often = nil, 1 // all holds are long: somebody else must get the lock in the meantime
	}
	if w.stay(lock, id, w.holdTime(r, long, often), lost) {
		w.log.Add(history.Event{At: now(), Kind: history.Told, ID: id})
		if w.Abandon && m.event.Delay == 0 && r.IntN(4) > 0 {
			w.mu.Lock()
			w.abandoned = append(w.abandoned, lock)
			w.mu.Unlock()
			return
		}
	}
	w.log.Add(history.Event{At: now(), Kind: history.Release, ID: id})
	w.released(id, lock.Release())
}

// stay works under a lock for a time, or until the heal, and logs its validity. It reports whether
// lost was closed first.
func (w *worker) stay(lock *snib.Lock, id int64, d time.Duration, lost <-chan struct{}) bool {
	w.acquired(lock, id)
	over := time.NewTimer(d)
	defer over.Stop()
	ticks := time.NewTicker(sampleInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			e := history.Event{At: now(), Kind: history.Valid, ID: id, Valid: lock.Validity()}
			if e.Valid == 0 {
				e.Kind = history.Over
			}
			w.log.Add(e)
			if w.calm() {
				return false
			}
		case <-lost:
			return true
		case <-over.C:
			return false
		}
	}
}

func (w *worker) released(id int64, err error) {
	e := history.Event{At: now(), Kind: history.Released, ID: id}
	if err != nil {
		e.Err, e.Lost = err.Error(), errors.Is(err, snib.ErrLost)
		e.Odd = !e.Lost && !errors.Is(err, snib.ErrUnreleased)
	}
	w.log.Add(e)
}

// holdTime returns a random time for which to hold a lock. It is mostly short, and once in
// about often times long. A quiet process has long holds more often.
func (w *worker) holdTime(r *rand.Rand, long time.Duration, often int) time.Duration {
	mean := 30 * time.Millisecond
	if w.Quiet {
		often = min(often, 4)
	}
	switch r.IntN(often) {
	case 0:
		mean = long
	case 1, 2:
		mean = ttl / 2
	}
	return min(2*mean, time.Duration(r.ExpFloat64()*float64(mean)))
}

// calm reports whether all faults are healed. Then nobody holds a lock for long.
func (w *worker) calm() bool {
	_, err := os.Stat(w.Calm)
	return err == nil
}

// lead campaigns until it has led for a while.
func (w *worker) lead(ctx context.Context, r *rand.Rand) {
	e := history.Event{Kind: history.Call, Name: "leader", Any: true}
	campaign := func() {
		e.At, e.ID = now(), w.ids.Add(1)
		w.log.Add(e)
	}
	campaign()
	over := errors.New("the term is over")
	err := leader.Run(ctx, w.locker, e.Name, func(ctx context.Context, lock *snib.Lock) error {
		defer campaign() // logs the next call if the leadership was lost
		w.holdUntilDone(ctx, r, lock, e.ID)
		return over
	}, leader.Pause(200*time.Millisecond))
	if err != nil && !errors.Is(err, over) && ctx.Err() == nil {
		w.failed(ctx, e.ID, err)
	}
}

// holdUntilDone is the work of a leader or a job, which learns of a loss only by its context.
func (w *worker) holdUntilDone(ctx context.Context, r *rand.Rand, lock *snib.Lock, id int64) {
	e := history.Event{Kind: history.Release, ID: id}
	if w.stay(lock, id, w.holdTime(r, ttl, 12), ctx.Done()) && errors.Is(context.Cause(ctx), snib.ErrLost) {
		e.Kind = history.Told
	}
	e.At = now()
	w.log.Add(e)
}

// runTick runs a job at the next tick of its schedule if this process gets the lock.
func (w *worker) runTick(ctx context.Context, r *rand.Rand) {
	wall := time.Now()
	at := wall.Truncate(interval).Add(interval)
	select {
	case <-time.After(at.Sub(wall)):
	case <-ctx.Done():
		return
	}
	if time.Since(at) > interval/4 {
		return // this process is late; a real one would need a longer MinHold
	}
	runner, err := cron.New(w.locker, interval/2)
	if err != nil {
		panic(err)
	}
	e := history.Event{At: now(), Kind: history.Call, ID: w.ids.Add(1), Name: "cron", Tick: at.Unix(), Any: true}
	w.log.Add(e)
	_, err = runner.Run(ctx, e.Name, func(ctx context.Context, lock *snib.Lock) error {
		w.holdUntilDone(ctx, r, lock, e.ID)
		return nil
	})
	if err != nil && !errors.Is(err, snib.ErrLost) && !errors.Is(err, snib.ErrUnreleased) &&
		!errors.Is(err, cron.ErrLate) {
		w.failed(ctx, e.ID, err)
	}
}
