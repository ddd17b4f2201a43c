package pglock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/driver/driverkit/rows"
)

// The states of a hold.
const (
	holdNew       = iota // the request has not got the lock
	holdHeld             // the session has the lock for a caller
	holdReleasing        // the session still has it, and no caller relies on it
	holdFreed            // the session has released it
	holdLost             // its session has ended
)

// A sessionLease is an advisory lock that a session has for us, or that a request wants. Session.mu
// guards what changes.
type sessionLease struct {
	s   *Session
	key int64
	req driver.Request

	state   int
	granted bool // Acquire is about to return the lease
	link    *link
	token   uint64
	since   driver.Instant
}

// isHeld reports whether a caller may rely on a hold.
func (s *Session) isHeld(h *sessionLease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.state == holdHeld
}

// forget records that nobody relies on a hold any more.
func (s *Session) forget(h *sessionLease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.state == holdHeld {
		h.state = holdReleasing
	}
}

// markGranted records that Acquire is about to return a lease. From then on it can be lost.
func (s *Session) markGranted(h *sessionLease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.granted = true
	if h.state == holdLost {
		h.tell(errSessionOver)
	}
}

// loseLocked ends a hold with its session, and tells its holder. The caller must hold Session.mu.
func (h *sessionLease) loseLocked(why error) {
	if h.state == holdHeld && h.granted {
		h.tell(why)
	}
	h.state = holdLost
}

// tell calls OnLost.
func (h *sessionLease) tell(why error) {
	if h.req.OnLost != nil {
		if !errors.Is(why, driver.ErrLost) {
			why = errors.Join(driver.ErrLost, why)
		}
		h.req.OnLost(why)
	}
}

// Lease returns the lease with the given id on a lock. A lock of a session can only be kept and
// released by what [Session.Acquire] has returned: the methods of other leases, and Renew, return
// [errors.ErrUnsupported].
func (s *Session) Lease(_, id string, _ time.Duration) driver.Lease {
	return driverkit.NewRemoteLease(id, func(context.Context) error { return driverkit.RemoteError() })
}

// ID returns the id of the request that has led to the lease.
func (h *sessionLease) ID() string { return h.req.ID }

// Grant implements [driver.Lease].
func (h *sessionLease) Grant() driver.Grant {
	return driver.Grant{Token: h.token, Start: h.since, TTL: h.s.conf.sessionTimeout}
}

// SetHolder implements [driver.Lease]: PostgreSQL describes no holders of advisory locks.
func (h *sessionLease) SetHolder(context.Context, driver.Holder) error { return errors.ErrUnsupported }

// Release implements [driver.Lease]. What MinHold keeps of a lock ends with the session, too.
func (h *sessionLease) Release(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	inner, cancel := driverkit.Detached(ctx)
	defer cancel()
	return h.release(inner, h.req.MinHold)
}

// release gives the lock up, once it was held for least.
func (h *sessionLease) release(ctx context.Context, least time.Duration) error {
	s := h.s
	s.mu.Lock()
	state, left := h.state, least-driver.Now().Sub(h.since)
	if state == holdHeld {
		h.state = holdReleasing
	}
	s.mu.Unlock()
	switch {
	case state == holdFreed || state == holdReleasing && left > 0:
		return nil
	case state == holdLost:
		return driver.ErrLost
	case left > 0:
		s.life.Go(func() {
			select {
			case <-time.After(left):
				_, _ = h.link.do(s.life.Context(), h.freeing()) // a failure ends the session
			case <-h.link.ctx.Done():
			}
		})
		return nil
	}
	_, err := h.link.do(ctx, h.freeing())
	switch {
	case s.stateOf(h) == holdFreed:
		return nil
	case errors.Is(err, errSessionOver), s.stateOf(h) == holdLost:
		return driver.ErrLost
	}
	return explain(err)
}

// freeing returns the call that frees a lock.
func (h *sessionLease) freeing() *linkCall {
	return &linkCall{run: func(ctx context.Context) error { return h.link.free(ctx, h) }}
}

func (s *Session) stateOf(h *sessionLease) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.state
}

// Status implements [driver.Inspector]. PostgreSQL knows the processes that have an advisory
// lock or wait for it, and not their ids, tokens and labels: only the holds of this driver have
// them. A client that is no session of this package is shown as Foreign.
func (s *Session) Status(ctx context.Context, name string) (driver.Status, error) {
	st := driver.Status{Name: name}
	if err := s.life.Ready(ctx); err != nil {
		return st, err
	}
	ctx, cancel := s.life.During(ctx)
	defer cancel()
	inner, done := driverkit.Detached(ctx)
	defer done()
	key := s.conf.key(name)
	err := forEachRow(s.pool.Query(inner, s.sql.status, pgx.QueryExecModeExec, key))(func(row pgx.Rows) error {
		var pid uint32
		var granted, shared bool
		var app string
		var waited int64
		if err := row.Scan(&pid, &granted, &shared, &app, &waited); err != nil {
			return err
		}
		s.describe(&st, pid, key, granted, shared, app, rows.Between(0, waited))
		return nil
	})
	if err != nil && inner.Err() != nil {
		err = context.Cause(inner)
	}
	return st, explain(err)
}

// describe adds a process that has a lock, or waits for it, to its status.
func (s *Session) describe(st *driver.Status, pid uint32, key int64, granted, shared bool, app string,
	waited time.Duration) {
	h := driver.Holding{Left: s.conf.sessionTimeout * 2 / 3}
	w := driver.Waiting{Shared: shared, Waited: waited}
	if ours, ok := strings.CutPrefix(app, sessionPrefix); ok {
		ours, h.Holder.Label, _ = strings.Cut(ours, " ")
		host, process, _ := strings.Cut(ours, ":")
		h.Holder.Host = host
		h.Holder.PID, _ = strconv.Atoi(process)
	} else {
		h.Foreign, h.Left = "server process "+strconv.Itoa(int(pid)), driver.NoExpiry
		h.Holder.Label = app
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.links {
		if l.pid != pid {
			continue
		}
		if mine := l.held[key]; granted && mine != nil {
			h.ID, h.Token, h.Holder, h.Held = mine.req.ID, mine.token, mine.req.Holder, driver.Now().Sub(mine.since)
		}
		if mine := l.waiting; !granted && mine != nil {
			w.ID, h.Holder = mine.req.ID, mine.req.Holder
		}
	}
	if granted {
		st.Holders = append(st.Holders, h)
	} else {
		w.Holder = h.Holder
		st.Waiters = append(st.Waiters, w)
	}
	st.Shared = shared && len(st.Holders)+len(st.Waiters) == 1 || st.Shared
}

// List implements [driver.Inspector]: PostgreSQL does not know the names of advisory locks.
func (s *Session) List(context.Context, string, func(driver.Status) bool) error {
	return errors.ErrUnsupported
}

// Break implements [driver.Inspector]: nobody can take one lock away from a session of another
// process. pg_terminate_backend ends a session with all its locks.
func (s *Session) Break(context.Context, string, string) error { return errors.ErrUnsupported }

// Withdraw implements [driver.Inspector]: the place of a dead process ends with its session.
func (s *Session) Withdraw(context.Context, string, string) error { return errors.ErrUnsupported }
