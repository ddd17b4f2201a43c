package access

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/serve"
)

// A Quota bounds what the principals of one namespace use together. A zero field is no bound.
type Quota struct {
	Locks    int           // holds at a time
	Waiters  int           // acquisitions that wait at a time
	MaxTTL   time.Duration // of a lease, and of its MinHold
	MaxHold  time.Duration // from the grant to the last renewal, and of a single lease
	Requests float64       // each second
}

// An ExceededError reports a request that a quota does not allow.
type ExceededError struct {
	What       string        // that was exceeded, as the policy file names it
	Limit      string        // that the policy sets
	RetryAfter time.Duration // when it may be allowed; 0 if it never is
}

// Error implements the error interface.
func (e *ExceededError) Error() string {
	return fmt.Sprintf("more than the %s of this namespace allows: %s", e.What, e.Limit)
}

// A listFunc lists the locks in the store, as [driver.Inspector] does.
type listFunc = func(ctx context.Context, prefix string, yield func(driver.Status) bool) error

// A meter counts what a namespace uses, and compares it with its quota.
//
// Requests and waiters are those of this replica. A waiter counts until its place has ended for
// certain. Holds are those in the store: what the last survey found, and what this replica was
// granted and released since. A hold that another replica grants is counted from the next survey
// on.
type meter struct {
	prefix string // of the namespace's names in the store
	list   listFunc

	requests *rate.Limiter // nil: no bound

	mu        sync.Mutex
	quota     Quota
	waiters   map[holdID]*waiter
	holds     map[holdID]time.Time // when each was granted, as far as the store knows it
	recent    map[holdID]time.Time // granted since the last survey began; zero time: released since
	nextAfter time.Time            // a survey before that is not needed
	underWay  *survey              // nil: there is none
}

const (
	// surveyInterval is how old the count of a namespace's holds may be.
	surveyInterval = time.Second

	// surveyShare bounds the cost of surveys: a survey that took d is not repeated for
	// surveyShare*d.
	surveyShare = 10

	// surveyTimeout bounds a survey.
	surveyTimeout = time.Minute
)

// A survey is a count of the holds in the store.
type survey struct {
	ended chan struct{}
	err   error // once ended is closed
}

// errSlowSurvey is what a request is told that can't wait for a survey any longer.
var errSlowSurvey = fmt.Errorf("%w: it takes long to count the holds of the namespace", driver.ErrUnavailable)

// newMeter returns a meter of the holds that list finds under a prefix.
func newMeter(prefix string, q Quota, list listFunc) *meter {
	m := &meter{prefix: prefix, list: list, waiters: map[holdID]*waiter{}, holds: map[holdID]time.Time{}, recent: map[holdID]time.Time{}}
	m.setQuota(q)
	return m
}

// setQuota changes the quota, and keeps the counts.
func (m *meter) setQuota(q Quota) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case q.Requests == 0:
		m.requests = nil
	case m.requests == nil || m.quota.Requests != q.Requests:
		// A burst of what two seconds allow lets a client renew several locks at once.
		m.requests = rate.NewLimiter(rate.Limit(q.Requests), max(1, int(2*q.Requests)))
	}
	m.quota = q
	if !m.countsHolds() {
		clear(m.holds)
		clear(m.recent)
	}
}

func (m *meter) countsHolds() bool { return m.quota.Locks > 0 || m.quota.MaxHold > 0 }

// request counts a request.
func (m *meter) request(now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.requests == nil {
		return nil
	}
	r := m.requests.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait == 0 {
		return nil
	}
	r.CancelAt(now)
	return &ExceededError{What: "requests", Limit: fmt.Sprintf("%v each second", m.quota.Requests), RetryAfter: wait}
}

// A waiter is an acquisition that waits: in a request, or in a place that it has between two.
type waiter struct {
	requests int
	forget   *time.Timer // ends the waiter, if there is no request; nil while the first one waits
}

// wait counts an acquisition that waits, until a request gets the hold, or place after the last
// one. A request that does not wait keeps the place of an earlier one that did. Done must be called
// with what came of the request.
func (m *meter) wait(id holdID, waits bool, place time.Duration) (done func(serve.Outcome), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.waiters[id]
	switch {
	case w == nil && !waits:
		return func(serve.Outcome) {}, nil
	case w == nil && m.quota.Waiters > 0 && len(m.waiters) >= m.quota.Waiters:
		return nil, &ExceededError{What: "waiters", Limit: fmt.Sprint(m.quota.Waiters), RetryAfter: surveyInterval}
	case w == nil:
		w = new(waiter)
		m.waiters[id] = w
	case w.forget != nil:
		w.forget.Stop()
	}
	w.requests++
	return func(out serve.Outcome) {
		m.mu.Lock()
		defer m.mu.Unlock()
		w.requests--
		switch {
		case out.Err == nil:
			m.forgetLocked(id, w)
		case w.requests == 0:
			w.forget = time.AfterFunc(place, func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.forgetLocked(id, w)
			})
		}
	}, nil
}

// forgetLocked ends a waiter that has no request.
func (m *meter) forgetLocked(id holdID, w *waiter) {
	if m.waiters[id] == w && w.requests == 0 {
		delete(m.waiters, id)
	}
}

// withdrawn forgets a waiter that was withdrawn.
func (m *meter) withdrawn(id holdID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waiters, id)
}

// lease checks for how long an action takes a lock without a renewal. A reservation may last for
// longer than other leases.
func (m *meter) lease(act serve.Action) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.quota
	switch {
	case q.MaxTTL > 0 && max(act.TTL, act.MinHold) > q.MaxTTL && act.Verb != serve.VerbReserve:
		return &ExceededError{What: "max-ttl", Limit: q.MaxTTL.String()}
	case q.MaxHold > 0 && max(act.TTL, act.MinHold) > q.MaxHold:
		return &ExceededError{What: "max-hold", Limit: q.MaxHold.String()}
	}
	return nil
}

// admit reports whether the namespace may have one more hold. A client that has this one already is
// admitted: it may ask again because it has not got an answer.
func (m *meter) admit(ctx context.Context, id holdID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.surveyLocked(ctx); err != nil {
		return err
	}
	return m.roomLocked(id)
}

// granted counts a hold that the store has granted. If it returns an error, the namespace had
// no room left for it, and the caller must release it.
func (m *meter) granted(id holdID, now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.roomLocked(id); err != nil {
		return err
	}
	if _, had := m.holds[id]; !had && m.countsHolds() {
		m.holds[id], m.recent[id] = now, now
	}
	return nil
}

func (m *meter) roomLocked(id holdID) error {
	if _, had := m.holds[id]; had || m.quota.Locks == 0 || len(m.holds) < m.quota.Locks {
		return nil
	}
	return &ExceededError{What: "locks", Limit: fmt.Sprint(m.quota.Locks), RetryAfter: surveyInterval}
}

// renew reports whether a hold may last longer.
func (m *meter) renew(ctx context.Context, id holdID, now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.quota.MaxHold == 0 {
		return nil
	}
	since, ok := m.holds[id]
	if !ok {
		if err := m.surveyLocked(ctx); err != nil {
			return err
		}
		if since, ok = m.holds[id]; !ok {
			return nil // the store will say that it is lost
		}
	}
	if now.Sub(since) >= m.quota.MaxHold {
		return &ExceededError{What: "max-hold", Limit: m.quota.MaxHold.String()}
	}
	return nil
}

// released forgets a hold that the store has freed.
func (m *meter) released(id holdID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.countsHolds() {
		delete(m.holds, id)
		m.recent[id] = time.Time{}
	}
}

// surveyLocked counts the holds in the store, unless the last survey is young enough. Callers
// at the same time share a survey, which goes on without them. It unlocks mu meanwhile.
func (m *meter) surveyLocked(ctx context.Context) error {
	if !m.countsHolds() || m.underWay == nil && time.Now().Before(m.nextAfter) {
		return nil
	}
	if m.underWay == nil {
		m.underWay = &survey{ended: make(chan struct{})}
		clear(m.recent)
		go m.run(context.WithoutCancel(ctx), m.underWay)
	}
	s := m.underWay
	m.mu.Unlock()
	defer m.mu.Lock()
	ctx, cancel := context.WithTimeoutCause(ctx, driver.AnswerTimeout, errSlowSurvey)
	defer cancel()
	select {
	case <-s.ended:
		return s.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run runs a survey.
func (m *meter) run(ctx context.Context, s *survey) {
	ctx, cancel := context.WithTimeoutCause(ctx, surveyTimeout, errSlowSurvey)
	defer cancel()
	began := time.Now()
	found := map[holdID]time.Time{}
	err := m.list(ctx, m.prefix, func(st driver.Status) bool {
		for _, h := range st.Holders {
			found[newHoldID(st.Name, serve.ClientID(h.ID))] = began.Add(-h.Held)
		}
		return true
	})

	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.adoptLocked(found)
		m.nextAfter = time.Now().Add(max(surveyInterval, surveyShare*time.Since(began)))
	}
	m.underWay, s.err = nil, err
	close(s.ended)
}

// adoptLocked makes what a survey found the count, with what happened here since it began.
func (m *meter) adoptLocked(found map[holdID]time.Time) {
	for id, since := range found {
		if known, ok := m.holds[id]; ok && known.Before(since) {
			found[id] = known // a store that does not know the age would make it new in each survey
		}
	}
	for id, since := range m.recent {
		if since.IsZero() {
			delete(found, id)
		} else {
			found[id] = since
		}
	}
	m.holds = found
}
