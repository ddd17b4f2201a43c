//go:build linux

package nemesis

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cron"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/nemesis/history"
	"github.com/sniblock/snib/leader"
)

// now reads the clock of the logs.
func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // it can't fail for this clock
	return ts.Nano()
}

// A Job is what a worker process does: it takes locks and gives them up, in every manner that its store has, and logs what it believes.
type Job struct {
	Store Store
	Name  string
	Log   string
	Seed  uint64
	Calm  string // a file that is there after the heal: holds are short then

	Mixed   bool          // some holds have another TTL
	Release time.Duration // ReleaseTimeout; 0 for the default
	Abandon bool          // some holds that were lost are not released until the end
	Quiet   bool          // it does less, so that it hears of a loss by nothing else, and holds locks for longer
	Deaf    bool          // it does not listen when it is told: a negative control
	Mute    bool          // its driver does not tell of a loss before the next renewal: a negative control
	Stale   bool          // its driver hands on leases that it has not asked the store about: a negative control
}

const (
	minHold   = 300 * time.Millisecond
	lockDelay = 500 * time.Millisecond
	interval  = time.Second // of the schedule
	sample    = 50 * time.Millisecond
	lateness  = 40 * time.Millisecond
)

// work is the job. It ends when it is told to; the goroutines give back what they have before.
func (j Job) work(ctx context.Context) error {
	log, err := history.Create(j.Log, j.Name)
	if err != nil {
		return err
	}
	d, err := j.Store.open(ctx)
	for ; err != nil; d, err = j.Store.open(ctx) {
		if errors.Is(err, driver.ErrInvalid) {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond): // the store is down
		case <-ctx.Done():
			return err
		}
	}
	if j.Mute || j.Stale {
		d = mute{d.(inspected)}
	}
	if j.Stale {
		d = stale{d.(inspected)}
	}
	opts := []snib.Option{snib.TTL(ttl)}
	if j.Release > 0 {
		opts = append(opts, snib.ReleaseTimeout(j.Release))
	}
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

// watchLateness logs when the machine did not let this process run.
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
			if at := now(); time.Duration(at-last) > lateness {
				w.log.Add(history.Event{At: last, Kind: history.Late, Until: at})
				last = now()
			} else {
				last = at
			}
		}
	})
	return func() { close(done); watching.Wait() }
}

// A manner is how a name is locked.
type manner struct {
	event history.Event // what the logs say of all its calls
	opts  []snib.Option
	stay  time.Duration // mean of holds, which are mostly long then; 0 for the usual
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
	plain := manner{event: history.Event{Name: "plain"}}
	mixed := []manner{
		plain,
		{event: plain.event, opts: []snib.Option{snib.TTL(shortTTL)}},
		{event: plain.event, opts: []snib.Option{snib.TTL(longTTL)}, stay: longTTL},
	}
	for range 2 { // so that there are hand-overs in the process
		loop(func(ctx context.Context, r *rand.Rand) {
			if w.Mixed {
				w.turn(ctx, r, mixed[r.IntN(len(mixed))])
			} else {
				w.turn(ctx, r, plain)
			}
		})
	}
	if info.Fairness != driver.FairNever {
		fair := manner{event: history.Event{Name: "fair"}, opts: []snib.Option{snib.Fair()}}
		loop(func(ctx context.Context, r *rand.Rand) { w.turn(ctx, r, fair) })
	}
	if info.Slots {
		slots := manner{event: history.Event{Name: "slots", Slots: 2}, opts: []snib.Option{snib.Slots(2)}}
		loop(func(ctx context.Context, r *rand.Rand) { w.turn(ctx, r, slots) })
	}
	if info.Shared {
		reader := manner{event: history.Event{Name: "shared", Shared: true}, opts: []snib.Option{snib.Shared()}}
		writer := manner{event: history.Event{Name: "shared"}}
		loop(func(ctx context.Context, r *rand.Rand) {
			if r.IntN(4) > 0 {
				w.turn(ctx, r, reader)
			} else {
				w.turn(ctx, r, writer)
			}
		})
	}
	least := manner{event: history.Event{Name: "minhold", MinHold: minHold}, opts: []snib.Option{snib.MinHold(minHold)}}
	loop(func(ctx context.Context, r *rand.Rand) { w.turn(ctx, r, least) })
	if info.Tenure == driver.TenureLease || info.SessionTTL > lockDelay {
		delayed := manner{event: history.Event{Name: "delay", Delay: lockDelay}, opts: []snib.Option{snib.LockDelay(lockDelay)}}
		loop(func(ctx context.Context, r *rand.Rand) { w.turn(ctx, r, delayed) })
	}
	loop(w.lead)
	loop(w.tick)
	running.Wait()
}

// pause waits for a random time between two holds.
func (w *worker) pause(ctx context.Context, r *rand.Rand) {
	mean := 80 * time.Millisecond
	if w.Quiet {
		mean = 800 * time.Millisecond
	}
	rest(ctx, r, mean)
}

// rest waits for a random time with the given mean.
func rest(ctx context.Context, r *rand.Rand, mean time.Duration) {
	select {
	case <-time.After(time.Duration(r.ExpFloat64() * float64(mean))):
	case <-ctx.Done():
	}
}

// turn takes a lock, holds it for a while, and gives it up.
func (w *worker) turn(ctx context.Context, r *rand.Rand, m manner) {
	e := m.event
	e.ID = w.ids.Add(1)
	acquire := w.locker.With(m.opts...).Acquire
	waiting, cancel := ctx, func() {}
	switch r.IntN(8) {
	case 0:
		acquire = w.locker.With(m.opts...).TryAcquire
	case 1:
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
	w.log.Add(history.Event{At: now(), Kind: history.Failed, ID: id, Err: err.Error(), Lost: errors.Is(err, snib.ErrLost), Odd: !expected})
}

// acquired logs a hold. The validity is read after the clock, so that its end is not late.
func (w *worker) acquired(lock *snib.Lock, id int64) {
	at := now()
	w.log.Add(history.Event{At: at, Kind: history.Acquired, ID: id, Token: lock.Token(), Valid: lock.Validity()})
}

// hold keeps a lock for a random time, or until it is lost, and gives it up.
func (w *worker) hold(r *rand.Rand, lock *snib.Lock, id int64, m manner) {
	w.acquired(lock, id)
	long, often := 2*ttl, 12
	if m.stay > 0 {
		long, often = m.stay, 3
	}
	stay := time.NewTimer(w.stay(r, long, often))
	defer stay.Stop()
	ticks := time.NewTicker(sample)
	defer ticks.Stop()
	lost := lock.Lost()
	if w.Deaf {
		lost = nil
	}
	for {
		select {
		case <-ticks.C:
			at := now()
			if valid := lock.Validity(); valid > 0 {
				w.log.Add(history.Event{At: at, Kind: history.Valid, ID: id, Valid: valid})
			}
			if !w.calm() {
				continue
			}
		case <-lost:
			w.log.Add(history.Event{At: now(), Kind: history.Told, ID: id})
			if w.Abandon && m.event.Delay == 0 && r.IntN(4) > 0 {
				w.mu.Lock()
				w.abandoned = append(w.abandoned, lock)
				w.mu.Unlock()
				return
			}
		case <-stay.C:
		}
		break
	}
	w.log.Add(history.Event{At: now(), Kind: history.Release, ID: id})
	w.released(id, lock.Release())
}

func (w *worker) released(id int64, err error) {
	e := history.Event{At: now(), Kind: history.Released, ID: id}
	if err != nil {
		e.Err, e.Lost = err.Error(), errors.Is(err, snib.ErrLost)
		e.Odd = !e.Lost && !errors.Is(err, snib.ErrUnavailable)
	}
	w.log.Add(e)
}

// stay is how long a lock is held: mostly for moments, and once in so many times, or more often by a quiet process, for long.
func (w *worker) stay(r *rand.Rand, long time.Duration, often int) time.Duration {
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

// calm reports whether all is healed. Then nobody holds a lock for long.
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
		defer campaign() // the next one, if the leadership was lost
		w.term(ctx, r, lock, e.ID)
		return over
	}, leader.Pause(200*time.Millisecond))
	if err != nil && !errors.Is(err, over) && ctx.Err() == nil {
		w.failed(ctx, e.ID, err)
	}
}

// term is the work of a leader, or of a job: what its context says is all that it knows.
func (w *worker) term(ctx context.Context, r *rand.Rand, lock *snib.Lock, id int64) {
	w.acquired(lock, id)
	stay := time.NewTimer(w.stay(r, ttl, 12))
	defer stay.Stop()
	ticks := time.NewTicker(sample)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			at := now()
			if valid := lock.Validity(); valid > 0 {
				w.log.Add(history.Event{At: at, Kind: history.Valid, ID: id, Valid: valid})
			}
			if !w.calm() {
				continue
			}
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), snib.ErrLost) {
				w.log.Add(history.Event{At: now(), Kind: history.Told, ID: id})
				return
			}
		case <-stay.C:
		}
		w.log.Add(history.Event{At: now(), Kind: history.Release, ID: id})
		return
	}
}

// tick runs a job at the next tick of its schedule, if this process gets it.
func (w *worker) tick(ctx context.Context, r *rand.Rand) {
	wall := time.Now()
	at := wall.Truncate(interval).Add(interval)
	select {
	case <-time.After(at.Sub(wall)):
	case <-ctx.Done():
		return
	}
	if time.Since(at) > interval/4 {
		return // this host is late; a real one would need a longer minHold
	}
	runner, err := cron.New(w.locker, interval/2)
	if err != nil {
		panic(err)
	}
	e := history.Event{At: now(), Kind: history.Call, ID: w.ids.Add(1), Name: "cron", Tick: at.Unix(), Any: true}
	w.log.Add(e)
	_, err = runner.Run(ctx, e.Name, func(ctx context.Context, lock *snib.Lock) error {
		w.term(ctx, r, lock, e.ID)
		return nil
	})
	if err != nil && !errors.Is(err, snib.ErrLost) && !errors.Is(err, cron.ErrLate) {
		w.failed(ctx, e.ID, err)
	}
}
