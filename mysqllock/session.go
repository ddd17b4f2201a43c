package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
)

// NewSession returns a driver whose locks are the server's own, taken with GET_LOCK. All of them
// belong to one session, on one connection that is taken out of db for as long as the driver is
// open, and end with that session: at once when the process dies, and after [Timeout] when it is
// stopped or cut off. Other programs that use the same names with GET_LOCK are excluded as well,
// see [Keys]. There are only exclusive locks.
//
// As with [New], a table holds the queue and the tokens; it is called snib_sessions. The driver
// writes it through other connections of db, which stays the caller's, and must be allowed to
// open at least two.
//
// Through a pooler that shares connections, each acquisition fails with a [driver.ErrInvalid]. All
// clients must use the same server, because GET_LOCK excludes only on one server. The driver does
// not detect that different clients use different servers, as in a Galera cluster behind a load
// balancer.
//
// NewSession does not contact the server. An option that is invalid, or a db that may open one
// connection only, is a [driver.ErrInvalid].
func NewSession(db *sql.DB, opts ...Option) (*Driver, error) {
	c, err := newConfig(db, "snib_sessions", opts)
	if db != nil && db.Stats().MaxOpenConnections == 1 {
		err = errors.Join(err, driver.Invalidf("db: it may open one connection only, and a session needs one to itself"))
	}
	if err != nil {
		return nil, err
	}
	return newDriver(db, c, true), nil
}

// describeSession changes the Info of rows to that of sessions.
func describeSession(info *driver.Info) {
	info.Tenure = driver.TenureSession
	info.Shared, info.Slots = false, false
	info.MinTTL = 0
	info.Assumptions = append([]string{
		"all clients speak to the same server: GET_LOCK is not replicated",
		"the end of a connection on the server reaches the client within 90 ms, and the Go driver can tell it (checkConnLiveness, on Unix)",
	}, info.Assumptions[1:]...)
}

// confirm answers renewals: a lease is still held if the session has its lock and its row has its
// entry.
func (d *Driver) confirm(ctx context.Context, all []renewal) error {
	start, err := d.rows.Ping(ctx)
	if err != nil && !errors.Is(err, driver.ErrLost) {
		return err
	}
	lost := err != nil
	found, err := d.read(ctx, namesOf(all))
	if err != nil && !lost {
		return err
	}
	for _, r := range all {
		if lost {
			r.setAnswer(false, start)
			continue
		}
		r.setAnswerFrom(found[r.Req.Name], start)
	}
	return nil
}

// checkRows ends the leases that were removed from their rows by others.
func (d *Driver) checkRows(ctx context.Context) {
	held := d.rows.LeasesOf()
	var names []string
	for _, le := range held {
		names = append(names, le.Req.Name)
	}
	slices.Sort(names)
	found, err := d.read(ctx, slices.Compact(names))
	if err != nil || len(names) == 0 {
		return
	}
	for _, le := range held {
		if row := found[le.Req.Name]; row == nil || row.Err == nil && row.HolderByToken(le.Grant().Token) == nil {
			le.MarkBroken()
		}
	}
}

// takeoverDelay is how long another process waits before it takes a lock whose session has ended.
// In that time the former holder learns that its connection has ended.
const takeoverDelay = 10 * closeCheckInterval

// reapSessions removes the holders whose session has ended from states.
func (d *Driver) reapSessions(ctx context.Context, states map[string]*state) error {
	if !d.rows.HasSession() {
		return nil
	}
	ended, newlyEnded := map[string]bool{}, false
	for _, s := range states {
		for _, h := range s.Holders {
			if _, known := ended[h.Session]; known || h.Kept || h.Session == "" {
				continue
			}
			if ended[h.Session] = d.ended.has(h.Session); ended[h.Session] {
				continue
			}
			var free sql.NullBool
			err := d.query(ctx, `SELECT IS_FREE_LOCK(?)`, []any{h.Session}, func(row *sql.Rows) error { return row.Scan(&free) })
			if err != nil {
				return err
			}
			ended[h.Session] = free.Valid && free.Bool
			newlyEnded = newlyEnded || ended[h.Session]
		}
	}
	if newlyEnded {
		select {
		case <-time.After(takeoverDelay):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for key, over := range ended {
		if over {
			d.ended.add(key)
		}
	}
	for _, s := range states {
		s.Holders = slices.DeleteFunc(s.Holders, func(h entry) bool { return !h.Kept && ended[h.Session] })
	}
	return nil
}

// An endedSet is a cache of sessions that have ended. It is emptied when it has 1000 entries. It
// is safe for concurrent use.
type endedSet struct {
	mu   sync.Mutex
	keys map[string]bool
}

func (e *endedSet) has(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.keys[key]
}

func (e *endedSet) add(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.keys == nil || len(e.keys) >= 1000 {
		e.keys = map[string]bool{}
	}
	e.keys[key] = true
}
