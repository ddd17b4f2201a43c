package serve

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/serve/internal/events"
)

// A leaseKey names a lease: by the name of the lock, and the owner, in the store.
type leaseKey struct{ name, owner string }

// leases are the leases that this replica has granted or taken over, so that a renewal is one
// request to the store. They may be forgotten at any time: the store has them.
type leases struct {
	mu      sync.Mutex
	all     map[leaseKey]*cached
	sweepAt int // number of leases at which those whose time is over are removed
}

// A cached lease is one that the replica has the driver's lease for.
type cached struct {
	lease    driver.Lease
	token    uint64
	ttl      time.Duration
	minHold  time.Duration
	reserved bool

	// Guarded by leases.mu.
	until    driver.Instant // the lease is forgotten then, unless it is renewed here
	released bool           // by this replica: a client that asks again is told so
}

// cacheTimeout is how long a lease is remembered that is not renewed. It may last for years, and
// end at another replica.
const cacheTimeout = 10 * time.Minute

// startedAt notes when the lease was granted or renewed.
func (c *cached) startedAt(start driver.Instant) { c.until = start.Add(min(c.ttl, cacheTimeout)) }

// add adds a lease.
func (l *leases) add(key leaseKey, c *cached) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addLocked(key, c)
}

// join is add for a lease that was taken over, unless another request of the client has taken over
// the same one, and one of them releases it. Then join returns what the other one has added.
func (l *leases) join(key leaseKey, c *cached) *cached {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.all[key]; other != nil && other.token == c.token && other.released != c.released {
		return other
	}
	l.addLocked(key, c)
	return c
}

func (l *leases) addLocked(key leaseKey, c *cached) {
	now := driver.Now()
	if len(l.all) >= l.sweepAt {
		for key, c := range l.all {
			if c.until.Reached(now) {
				delete(l.all, key)
			}
		}
		l.sweepAt = max(1024, 2*len(l.all))
	}
	l.all[key] = c
}

// get returns the lease of a key with a token, or nil.
func (l *leases) get(key leaseKey, token uint64) *cached {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.all[key]; c != nil && c.token == token {
		return c
	}
	return nil
}

// renewed notes that a lease was renewed.
func (l *leases) renewed(c *cached, start driver.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.startedAt(start)
}

// drop forgets a lease.
func (l *leases) drop(key leaseKey, c *cached) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all[key] == c {
		delete(l.all, key)
	}
}

// markReleased notes that a lease was released.
func (l *leases) markReleased(c *cached) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.released = true
}

func (l *leases) isReleased(c *cached) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.released
}

// keep adds a lease that was granted to a request.
func (s *Service) keep(req driver.Request, granted driver.Lease) *cached {
	c := newCached(req, granted)
	s.leases.add(leaseKey{req.Name, req.Owner}, c)
	return c
}

func newCached(req driver.Request, granted driver.Lease) *cached {
	g := granted.Grant()
	c := &cached{lease: granted, token: g.Token, ttl: req.TTL, minHold: req.MinHold, reserved: req.Holder.IsReserved()}
	if g.TTL > 0 {
		c.ttl = g.TTL
	}
	c.startedAt(g.Start)
	return c
}

// A found is a hold as the store shows it.
type found struct {
	driver.Holding
	name   string
	shared bool
	slots  int
}

// find returns the hold that a client calls owner, with a token; any token if that is 0. If there
// is none, the error matches ErrLost. A hold that its replica may still give up is none.
func (s *Service) find(ctx context.Context, name string, owner ownerID, token uint64) (*found, error) {
	return s.findWhere(ctx, name, func(h driver.Holding) bool {
		_, waits := withoutWaitingLabel(h.Holder)
		return owner.names(h.Owner) && (token == 0 || h.Token == token) && !waits && h.Foreign == ""
	})
}

// findWhere returns the first hold of a lock that is the one. If there is none, the error matches
// ErrLost.
func (s *Service) findWhere(ctx context.Context, name string, isOne func(driver.Holding) bool) (*found, error) {
	st, err := s.driver.Status(ctx, name)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(st.Holders, isOne); i >= 0 {
		return &found{st.Holders[i], name, st.Shared, st.Slots}, nil
	}
	return nil, driver.ErrLost
}

// takeOver acquires a hold once more, under the owner that it has: so this replica gets a lease of
// it, for a new TTL. If the hold has ended meanwhile, the error matches ErrLost.
//
// A driver withdraws an acquisition that fails, and that would end the hold. So the request waits
// for longer than the hold can last without an answer of the store, and it is only given up once
// the store has said that others have the lock.
func (s *Service) takeOver(ctx context.Context, f *found, ttl, minHold time.Duration) (*cached, error) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	holder := f.Holder
	req := driver.Request{
		Name: f.name, Owner: f.Owner, TTL: ttl, Shared: f.shared, Slots: f.slots, MinHold: minHold,
		RetryTimeout: max(driver.RetryTimeout, 2*f.Left, 2*ttl), Detached: true, Holder: holder,
		OnWait: func(err error) {
			if err == nil {
				cancel(driver.ErrLost)
			}
		},
	}
	granted, err := s.driver.Acquire(ctx, req)
	switch {
	case errors.Is(err, driver.ErrKind), errors.Is(err, driver.ErrHeld):
		return nil, driver.ErrLost
	case err != nil:
		return nil, err
	}
	c := newCached(req, granted)
	isNew := c.token != f.Token // the lock was free
	c.released = isNew
	joined := s.leases.join(leaseKey{req.Name, req.Owner}, c)
	if isNew && joined == c {
		_ = granted.Release(ctx) // otherwise it lapses
	}
	if isNew || s.leases.isReleased(joined) {
		return nil, driver.ErrLost
	}
	return c, nil
}

// awaitTakeOver is takeOver for a caller that waits until ctx is done. The take-over goes on.
func (s *Service) awaitTakeOver(ctx context.Context, f *found, ttl, minHold time.Duration) (*cached, error) {
	type answer struct {
		c   *cached
		err error
	}
	answers := make(chan answer, 1)
	s.running.Go(func() {
		c, err := s.takeOver(ctx, f, ttl, minHold)
		answers <- answer{c, err}
	})
	select {
	case a := <-answers:
		return a.c, a.err
	case <-ctx.Done():
		return nil, errors.Join(driver.ErrUnavailable, context.Cause(ctx))
	}
}

// A ref names a hold, as a client does.
type ref struct {
	name  string // in the store
	owner ownerID
	token uint64
}

// key returns the key of a hold that the client calls by its owner in the store.
func (r ref) key() leaseKey { return leaseKey{r.name, r.owner.String()} }

// cached returns the lease of a hold if this replica has it.
func (s *Service) cached(r ref) *cached { return s.leases.get(r.key(), r.token) }

// extend makes a hold last ttl from now on.
func (s *Service) extend(ctx context.Context, r ref, ttl time.Duration) error {
	f, err := s.find(ctx, r.name, r.owner, r.token)
	if err != nil {
		return err
	}
	_, err = s.awaitTakeOver(ctx, f, ttl, 0)
	return err
}

// renewAll renews holds, and returns one error for each. Those whose leases this replica has go to
// the store together.
func (s *Service) renewAll(ctx context.Context, all []ref, ttls []time.Duration) []error {
	errs := make([]error, len(all))
	var due []driver.Lease
	var places []int // of each lease of due in all
	var have []*cached
	for i, r := range all {
		if c := s.cached(r); c != nil && c.ttl == ttls[i] && !s.leases.isReleased(c) {
			due, places, have = append(due, c.lease), append(places, i), append(have, c)
		} else {
			errs[i] = errNotCached
		}
	}
	if len(due) > 0 {
		for j, answer := range s.driver.Renew(ctx, due) {
			i := places[j]
			switch {
			case answer.Err == nil:
				s.leases.renewed(have[j], answer.Start)
			case errors.Is(answer.Err, driver.ErrLost): // or another replica has taken it over
				s.leases.drop(all[i].key(), have[j])
				errs[i] = errNotCached
			default:
				errs[i] = answer.Err
			}
		}
	}
	s.extendAll(ctx, all, ttls, errs)
	return errs
}

// errNotCached marks a hold that renewAll has to find in the store.
const errNotCached driver.Sentinel = "the lease is not cached"

// maxTakeOvers is how many holds of one batch are taken over at a time.
const maxTakeOvers = 64

// extendAll renews the holds whose error is errNotCached, and replaces that error.
func (s *Service) extendAll(ctx context.Context, all []ref, ttls []time.Duration, errs []error) {
	var working sync.WaitGroup
	slots := make(chan struct{}, maxTakeOvers)
	for i, r := range all {
		if !errors.Is(errs[i], errNotCached) {
			continue
		}
		slots <- struct{}{}
		working.Go(func() {
			defer func() { <-slots }()
			errs[i] = s.extend(ctx, r, ttls[i])
		})
	}
	working.Wait()
}

// end releases a hold.
func (s *Service) end(ctx context.Context, r ref, minHold time.Duration) error {
	if c := s.cached(r); c != nil && (minHold == 0 || minHold == c.minHold) {
		if s.leases.isReleased(c) {
			return nil // the client did not get the answer
		}
		err := s.releaseCached(ctx, r.key(), c)
		if !errors.Is(err, driver.ErrLost) {
			return err
		}
		s.leases.drop(r.key(), c) // another replica may have taken it over
	}
	f, err := s.find(ctx, r.name, r.owner, r.token)
	if err != nil {
		return err
	}
	if minHold == 0 {
		return s.breakFound(ctx, f, events.EndReleased)
	}
	c, err := s.awaitTakeOver(ctx, f, max(f.Left, time.Second), minHold)
	if err != nil {
		return err
	}
	return s.releaseCached(ctx, leaseKey{f.name, f.Owner}, c)
}

// releaseCached releases a lease that this replica has.
func (s *Service) releaseCached(ctx context.Context, key leaseKey, c *cached) error {
	hold := events.Hold{Name: key.name, Owner: key.owner, Token: c.token}
	err := s.events.Ending(hold, events.EndReleased, func() error { return c.lease.Release(ctx) })
	if err == nil {
		s.leases.markReleased(c)
	}
	return err
}

// setLabel changes the label of a hold whose renewals have a TTL.
func (s *Service) setLabel(ctx context.Context, r ref, label string, ttl time.Duration) error {
	if c := s.cached(r); c != nil && !s.leases.isReleased(c) {
		if err := c.lease.SetLabel(ctx, asKind(label, c.reserved)); !errors.Is(err, driver.ErrLost) {
			return err
		}
		s.leases.drop(r.key(), c)
	}
	f, err := s.find(ctx, r.name, r.owner, r.token)
	if err != nil {
		return err
	}
	f.Left = max(f.Left, ttl) // another replica may have renewed it since
	return s.setLabelOf(ctx, f, label)
}

// setLabelOf is setLabel for a hold that was found.
func (s *Service) setLabelOf(ctx context.Context, f *found, label string) error {
	c, err := s.awaitTakeOver(ctx, f, max(f.Left, time.Second), 0)
	if err != nil {
		return err
	}
	return c.lease.SetLabel(ctx, asKind(label, c.reserved))
}
