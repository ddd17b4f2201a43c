package pglock

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/driver/driverkit/rows"
)

// The states of a lease.
const (
	leaseNew     = iota // the server has not given the lock
	leaseHeld           // a caller relies on it
	leaseLeaving        // the session may still have the lock, and no caller relies on it
	leaseFreed          // it was released; MinHold may keep the lock in the session
	leaseLost           // its session has ended
)

// A sessionLease is an advisory lock that a session has for us, or that a request wants.
type sessionLease struct {
	s   *Session
	key int64
	req driver.Request

	// Guarded by Session.mu. What is about the grant does not change once the lease is held.
	state     int
	freeing   *call
	link      *link
	token     uint64
	since     driver.Instant
	grantedAt driver.Instant // at the grant or later: MinHold counts from then
}

// abandon records that nobody wants the lock any more, unless the session has it by now.
func (h *sessionLease) abandon() bool {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.state == leaseNew {
		h.state = leaseLeaving
	}
	return h.state == leaseLeaving
}

// Lease returns the lease with the given id on a lock. A lock of a session can only be kept and
// released by what [Session.Acquire] has returned: the methods of other leases, and Renew, return
// [errors.ErrUnsupported].
func (s *Session) Lease(_, id string, _ time.Duration) driver.Lease {
	return driverkit.RemoteLease(id)
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
	inner, cancel := driverkit.Detached(ctx)
	defer cancel()
	if c := h.free(); c != nil {
		switch err := c.await(inner); {
		case errors.Is(err, errDemoted), errors.As(err, new(pooledError)):
			return driver.ErrLost // another server may have granted the lock before
		case err != nil: // a connection that is reset does not tell what came first, the release or the end
			return explain(err)
		}
	}
	if h.s.stateOf(h) == leaseLost {
		return driver.ErrLost
	}
	return nil
}

// free has the session free the lock once it was held for MinHold. It returns the call that does,
// or that asks whether the lock was held until now; or nil if there is nothing to wait for.
func (h *sessionLease) free() *call {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	left := h.req.MinHold - driver.Now().SubMono(h.grantedAt)
	switch {
	case h.state == leaseHeld && left > 0:
		h.state, h.freeing = leaseFreed, h.link.send(newCall(askPing, nil))
		time.AfterFunc(left, func() {
			h.s.mu.Lock()
			defer h.s.mu.Unlock()
			h.link.send(newCall(askFree, h))
		})
	case h.state == leaseHeld:
		h.state, h.freeing = leaseLeaving, h.link.send(newCall(askFree, h))
	case h.state == leaseFreed && h.freeing.err != nil && slices.Contains(h.s.links, h.link): // the ping has failed
		h.freeing = h.link.send(newCall(askPing, nil))
	}
	return h.freeing
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
	err := forEachRow(s.pool.Query(inner, s.sql.SessionStatus, pgx.QueryExecModeExec, key))(func(row pgx.Rows) error {
		var pid uint32
		var granted, shared bool
		var app string
		var waited int64
		if err := row.Scan(&pid, &granted, &shared, &app, &waited); err != nil {
			return err
		}
		h := s.describe(pid, key, app)
		if granted {
			st.Holders = append(st.Holders, h)
		} else {
			st.Waiters = append(st.Waiters,
				driver.Waiting{ID: h.ID, Holder: h.Holder, Shared: shared, Waited: rows.Between(0, waited)})
		}
		st.Shared = shared && len(st.Holders)+len(st.Waiters) == 1 || st.Shared
		return nil
	})
	if err != nil && inner.Err() != nil {
		err = context.Cause(inner)
	}
	return st, explain(err)
}

// describe returns what is known of a process of the server that has a lock or waits for it.
func (s *Session) describe(pid uint32, key int64, app string) driver.Holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := driver.Holding{Left: s.conf.sessionTimeout * 2 / 3}
	for _, l := range s.links {
		if h := l.held[key]; h != nil && l.conn.PID() == pid {
			known.ID, known.Token, known.Holder = h.req.ID, h.token, h.req.Holder
			if h.token > 0 {
				known.Held = driver.Now().Sub(h.since)
			}
			if h.state == leaseFreed {
				known.Holder.Kind = driver.KindKept
			}
			return known
		}
	}
	ours, ok := strings.CutPrefix(app, sessionPrefix)
	if !ok {
		return driver.Holding{Foreign: "server process " + strconv.Itoa(int(pid)), Left: driver.NoExpiry, Holder: driver.Holder{Label: app}}
	}
	process, label, _ := strings.Cut(ours, " ")
	host, number, _ := strings.Cut(process, ":")
	known.Holder = driver.Holder{Host: host, Label: label}
	known.Holder.PID, _ = strconv.Atoi(number)
	return known
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
