package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/redlock/internal/quorum"
)

const (
	// presence is how often a waiter asks again at the least. a node forgets who is silent for three times as long.
	presence = 5 * time.Second

	// outage is how long an acquisition goes on trying while there is no majority, and brief how long one with NoWait does.
	outage = time.Minute
	brief  = time.Second

	// withdrawal is how long a failed acquisition waits for what it asked for to be taken back, and parting how long after the end of its
	// context. That goes on behind it.
	withdrawal = 250 * time.Millisecond
	parting    = driver.CancelTimeout * 4 / 5

	// rematches is how often a split vote is repeated for NoWait.
	rematches = 16
)

// A HeldError says that somebody else has the lock on a majority of the nodes, and for how long at most, unless the holder goes on. It
// matches [driver.ErrHeld].
type HeldError struct {
	Left time.Duration // until a majority of the nodes is free; negative if keys have no end, as a stranger may leave them

	blocked quorum.Set // the nodes that are not free
	took    time.Duration
}

func (e *HeldError) Error() string {
	if e.Left < 0 {
		return fmt.Sprintf("%v, by keys that never end", driver.ErrHeld)
	}
	return fmt.Sprintf("%v; its lease lasts another %v", driver.ErrHeld, e.Left)
}

// Is reports whether target is [driver.ErrHeld].
func (e *HeldError) Is(target error) bool { return target == driver.ErrHeld }

// A splitError says that nobody is known to have a majority: several fight for the lock, or nodes that may know more do not answer. It
// matches [driver.ErrUnavailable].
type splitError struct {
	HeldError

	fought               bool // nobody can have a majority, whatever the silent nodes know
	known, silent, nodes int  // nodes that one holder has, those that do not say, and all
}

func (e *splitError) Error() string {
	if e.fought {
		return fmt.Sprintf("%v: several fight for the lock, and nobody has a majority", driver.ErrUnavailable)
	}
	return fmt.Sprintf("%v: nobody is known to have a majority: %d of %d nodes are somebody's, and %d do not answer",
		driver.ErrUnavailable, e.known, e.nodes, e.silent)
}

// Is reports whether target is [driver.ErrUnavailable].
func (e *splitError) Is(target error) bool { return target == driver.ErrUnavailable }

// An ask is one acquisition, of as many attempts as it takes.
type ask struct {
	d      *Driver
	req    driver.Request
	lock   lock
	topic  *topic // that is listened to; nil without one
	watch  *watch // of the present attempt, if there is a topic
	splits int    // attempts in a row that ended without a majority for anybody

	leave driver.Instant // when to return at the latest, once ctx is done; zero before
}

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := d.check(&req); err != nil {
		return nil, err
	}
	if !d.enter() {
		return nil, driver.ErrClosed
	}
	defer d.working.Done()
	a := &ask{d: d, req: req, lock: lockOf(req.Name)}
	l, err := a.try(ctx)
	if err != nil {
		l, err = a.wait(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// check refuses what can't be asked for.
func (d *Driver) check(req *driver.Request) error {
	switch {
	case !utf8.ValidString(req.Owner):
		return fmt.Errorf("%w owner %q: it is not valid UTF-8", driver.ErrInvalid, req.Owner)
	case req.Shared, req.Slots > 0, req.Fair:
		return fmt.Errorf("%w request: Redlock has neither shared locks, nor semaphores, nor an order of arrival", driver.ErrInvalid)
	case req.TTL < minTTL || req.TTL > d.params.MaxTTL:
		return fmt.Errorf("%w TTL: %v, want %v to %v", driver.ErrInvalid, req.TTL, minTTL, d.params.MaxTTL)
	}
	return nil
}

// try makes one attempt, or two if the owner turns out to hold the lock already.
func (a *ask) try(ctx context.Context) (*lease, error) {
	t := a.d.attempt(&a.req, &a.lock, "", a.topic != nil)
	if t.wait(ctx) == quorum.Won && ctx.Err() == nil {
		return a.won(t), nil
	}
	a.withdraw(ctx, t.end())
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if nonce, tokens := t.mine(); nonce != "" {
		a.req.Tokens = tokens // whatever is asked for now
		again := a.d.attempt(&a.req, &a.lock, nonce, false)
		if again.wait(ctx) == quorum.Won && ctx.Err() == nil {
			return a.won(again), nil
		}
	}
	return nil, t.refusal()
}

// withdraw gives the nodes a moment to take back what was asked of them. That goes on behind it.
func (a *ask) withdraw(ctx context.Context, p *poll) {
	p.wait(ctx, withdrawal)
	if ctx.Err() == nil {
		return
	}
	if now := driver.Now(); a.leave.IsZero() {
		a.leave = now.Add(parting)
	}
	p.wait(context.Background(), a.leave.Left(driver.Now()))
}

// mine returns the nonce under which a majority knows a lease of the same owner, or "", and how many tokens the lease has.
func (a *attempt) mine() (nonce string, tokens int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	count := make(map[string]int)
	for i := range a.d.nodes {
		if a.replies[i].kind != held {
			continue
		}
		if v := parseValue(a.replies[i].value); v.ours && !v.kept && v.holder.Owner == a.req.Owner {
			if count[v.nonce]++; count[v.nonce] >= a.d.params.Quorum() {
				return v.nonce, int(min(v.holder.Tokens, maxBlock)) //nolint:gosec // it is small
			}
		}
	}
	return "", 0
}

// refusal says why an attempt failed.
func (a *attempt) refusal() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := HeldError{took: driver.Now().Sub(a.start)}
	var strays, aliens []string
	left := make([]time.Duration, 0, quorum.MaxNodes) // until each node that says so is free
	holders := make(map[string]int)
	most, unknown := 0, 0 // nodes that one holder has, and those that it may have
	errs := make([]error, len(a.d.nodes))
	for i, n := range a.d.nodes {
		switch r := &a.replies[i]; r.kind {
		case granted, absent:
			left = append(left, 0)
		case held:
			v := parseValue(r.value)
			holders[v.nonce]++
			most = max(most, holders[v.nonce])
			left = append(left, r.left)
			e.blocked |= 1 << i
		case unadmitted:
			errs[i] = keptOut(r.value)
			unknown++
		case mismatched:
			errs[i] = stray(r.value)
			strays = append(strays, n.address+" belongs to another, as "+quoted(r.value))
		case alien:
			errs[i] = fmt.Errorf("the lock's key is a %s", graphic(r.value))
			aliens = append(aliens, n.address+" has a "+graphic(r.value))
		case silent:
			if errs[i] = r.err; r.err == nil {
				errs[i] = errOverdue
			}
			unknown++
		}
	}
	q := a.d.params.Quorum()
	switch spare := len(a.d.nodes) - q; {
	case len(strays) > spare:
		return fmt.Errorf("%w list of nodes or MaxTTL: ours is %s; %s", driver.ErrInvalid, a.d.cluster, strings.Join(strays, "; "))
	case len(aliens) > spare:
		return fmt.Errorf("%w: the name is in use for something else: %s", driver.ErrKind, strings.Join(aliens, "; "))
	case len(left) < q:
		return a.d.silent(errs)
	}
	slices.Sort(left)
	if e.Left = left[q-1]; e.Left == endless {
		e.Left = -1
	}
	if most < q {
		return &splitError{HeldError: e, fought: most+unknown < q, known: most, silent: unknown, nodes: len(a.d.nodes)}
	}
	return &e
}

// won makes the lease.
func (a *ask) won(t *attempt) *lease {
	t.mu.Lock()
	last, asked := t.target, t.asked
	refused := quorum.Set(0)
	for i := range asked.All() {
		if t.replies[i].kind == held {
			refused |= 1 << i
		}
	}
	t.mu.Unlock()
	if a.topic != nil {
		a.depart(refused) // elsewhere the grant did it
	}
	a.d.seen(&a.lock, last)
	return newLease(a.d, a.req, a.lock, t, last)
}

// depart makes the nodes forget that we wait.
func (a *ask) depart(nodes quorum.Set) *poll {
	forgotten := driver.Now().Add(3 * presence)
	return a.d.tidyUp(nodes, forgotten, 'd', &a.lock, a.req.Owner)
}

// wait tries again until the lock is granted, ctx is done, or there is no hope. Err is why the first attempt failed.
func (a *ask) wait(ctx context.Context, err error) (*lease, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(a.d.life, func() { cancel(driver.ErrClosed) })()
	var trouble backoff
	for ctx.Err() == nil {
		pause, hope := a.pause(err, &trouble)
		if !hope {
			break
		}
		if a.topic == nil && contention(err) != nil && !a.req.NoWait {
			a.topic = a.d.ears.join(ctx, &a.lock)
			defer a.d.ears.leave(a.topic)
			defer func() { a.topic.unwatch(a.watch) }()
		} else {
			a.sleep(ctx, pause, err)
		}
		if ctx.Err() == nil {
			if a.topic != nil {
				a.topic.unwatch(a.watch)
				a.watch = a.topic.watch()
			}
			l, tried := a.try(ctx)
			if tried == nil {
				return l, nil
			}
			if ctx.Err() == nil { // else it is not known how the attempt would have ended
				err = tried
			}
		}
	}
	if a.topic != nil {
		a.withdraw(ctx, a.depart(1<<len(a.d.nodes)-1))
	}
	switch {
	case ctx.Err() == nil:
		return nil, err
	case errors.Is(err, driver.ErrUnavailable) && contention(err) == nil && !errors.Is(context.Cause(ctx), driver.ErrClosed):
		return nil, fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	return nil, context.Cause(ctx)
}

// contention returns what is known of the holders if somebody has the lock, or several fight for it; else nil.
func contention(err error) *HeldError {
	var held *HeldError
	if split := (*splitError)(nil); errors.As(err, &split) {
		return &split.HeldError
	}
	_ = errors.As(err, &held)
	return held
}

// pause returns how long to sleep after an attempt that failed with err, and whether to try again at all.
func (a *ask) pause(err error, trouble *backoff) (pause time.Duration, hope bool) {
	var split *splitError
	var silence *silence
	held := contention(err)
	switch {
	case errors.As(err, &split) && (split.fought || a.req.NoWait):
		a.splits++
		spread := max(split.took, time.Millisecond) << min(a.splits, 6)
		return rand.N(min(spread, 100*time.Millisecond)), !a.req.NoWait || a.splits <= rematches
	case held != nil:
		a.splits = 0
		*trouble = backoff{}
		return held.sleep(), !a.req.NoWait
	case !errors.Is(err, driver.ErrUnavailable):
		return 0, false
	case errors.As(err, &silence) && silence.kept > 0 && !a.req.NoWait: // until they are admitted
		_, hope = trouble.next(a.d.params.Quarantine() + outage)
		return 50*time.Millisecond + rand.N(50*time.Millisecond), hope
	}
	limit := outage
	if a.req.NoWait {
		limit = brief
	}
	return trouble.next(limit)
}

// sleep is how long a waiter may wait for a message. Messages only shorten it.
func (e *HeldError) sleep() time.Duration {
	if e.Left < 0 {
		return presence
	}
	return min(e.Left+time.Millisecond+rand.N(10*time.Millisecond), presence)
}

// sleep lets time pass. A waiter whose lock was released on so many nodes that a majority is free wakes up at once, but for a
// while, at random, that is longer the more others it wakes with.
func (a *ask) sleep(ctx context.Context, d time.Duration, err error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	var hints <-chan int
	e := contention(err)
	if e != nil && a.topic != nil {
		hints = a.topic.sleep(a.watch, e.blocked)
	}
	for {
		select {
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		case crowd := <-hints:
			hints = nil
			timer.Reset(rand.N(min(time.Duration(max(crowd-1, 0))*max(e.took, time.Millisecond), 50*time.Millisecond) + 1))
		}
	}
}

// backoff spaces the attempts while there is no majority.
type backoff struct {
	since time.Time
	pause time.Duration
}

// next returns the pause before the next attempt, and whether there should be one, within so long after the first.
func (b *backoff) next(limit time.Duration) (time.Duration, bool) {
	if b.pause == 0 {
		b.since, b.pause = time.Now(), time.Millisecond
	}
	b.pause = min(2*b.pause, 500*time.Millisecond)
	return b.pause/2 + rand.N(b.pause/2), time.Since(b.since) < limit
}
