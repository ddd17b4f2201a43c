package mysqllock

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"time"

	"github.com/sniblock/snib/driver/driverkit/rows"
)

// processPrefix begins the names of rows that stand for processes. No lock has a NUL in its name.
const processPrefix = "\x00p"

// maxOthers bounds how many other processes are remembered.
const maxOthers = 4096

// processes records the heartbeats of the processes that wait: of this one, and of the others. A
// waiter is alive as long as its process is.
type processes struct {
	mu     sync.Mutex
	others map[string]processRow // by id

	heartbeatLock semaphore // serializes heartbeats, and guards lastHeartbeat
	lastHeartbeat time.Time // when this process sent its last one
}

// poll reads the rows that attempts wait for. If a heartbeat of this process is due, it sends that
// first, and handles the signals that the watcher has missed: one may be to a waiter that could not
// be withdrawn, and nobody else removes that while this process lives.
func (d *Driver) poll(ctx context.Context, names, _ []string, heartbeat bool) (map[string]*rows.State, error) {
	ctx = admitted(ctx) // nobody else polls, and only a heartbeat may wait for a row
	if heartbeat {
		if err := d.processes.ensureHeartbeat(limitLockWait(ctx, 1), d); err != nil {
			return nil, err
		}
		err := d.query(ctx, d.sql.Called, []any{[]byte(d.rows.ID)}, func(row *sql.Rows) error {
			var name string
			err := row.Scan(&name)
			d.rows.Life.Go(func() { d.onSignal(name) }) // one row that is locked must not hold up the heartbeats
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	found, err := d.readBy(ctx, d.sql.Read, names, false)
	if err == nil {
		d.writeCapped(found)
	}
	return statesOf(found), err
}

// ensureHeartbeat sends a heartbeat of this process, unless there was one recently.
func (w *processes) ensureHeartbeat(ctx context.Context, d *Driver) error {
	leave, err := w.heartbeatLock.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	sentAt, timeout := time.Now(), rows.HeartbeatTimeout.Microseconds()
	if sentAt.Sub(w.lastHeartbeat) < rows.HeartbeatInterval*9/10 {
		return nil
	}
	text := lockLimit(ctx) + complete(d.sql.Heartbeat, []byte(processPrefix+d.rows.ID), timeout, timeout)
	_, err = d.run(ctx, func(ctx context.Context, conn *sql.Conn) error {
		res, err := conn.ExecContext(ctx, text)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n > 0 {
			return err
		}
		return errReadOnly // although this account may write there
	})
	if err == nil {
		w.lastHeartbeat = sentAt
	}
	return err
}

// reapDead removes dead waiters from states: those whose process sends no heartbeats, and those
// of this process that the driver does not know.
func (d *Driver) reapDead(ctx context.Context, states map[string]*state) error {
	w := &d.processes
	w.mu.Lock()
	var unknown []string
	for _, s := range states {
		s.reap(func(e entry) bool { return e.Process() == d.rows.ID && !d.rows.IsAttempt(e.Nonce) })
		for _, e := range s.Waiters {
			if id := e.Process(); id != d.rows.ID && !w.others[id].isLive(s.Now) && !slices.Contains(unknown, processPrefix+id) {
				unknown = append(unknown, processPrefix+id)
			}
		}
	}
	w.mu.Unlock()
	if len(unknown) == 0 {
		return nil
	}
	live := map[string]int64{}
	for chunk := range slices.Chunk(unknown, maxNames) {
		err := d.query(ctx, forNames(d.sql.ReadLive, len(chunk)), nameArgs(chunk), func(row *sql.Rows) error {
			var name string
			var ends int64
			err := row.Scan(&name, &ends)
			live[name] = ends
			return err
		})
		if err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked(unknown, live)
	for _, s := range states {
		s.reap(func(e entry) bool {
			return slices.Contains(unknown, processPrefix+e.Process()) && !w.others[e.Process()].isLive(s.Now)
		})
	}
	return nil
}

// noteLocked remembers how long the processes with these rows count, which is not at all without a
// row. If there are too many, it forgets the others. Then one whose row lasts longer than its
// heartbeats, because the server's clock was set back, counts for some seconds again.
func (w *processes) noteLocked(names []string, ends map[string]int64) {
	if len(w.others)+len(names) > maxOthers {
		clear(w.others)
	}
	for _, name := range names {
		id := name[len(processPrefix):]
		switch ends[name] {
		case 0:
			delete(w.others, id)
		case w.others[id].ends: // no heartbeat since then
		default:
			w.others[id] = processRow{ends[name], time.Now()}
		}
	}
}

// reap removes the waiters that are dead.
func (s *state) reap(dead func(entry) bool) {
	before := len(s.Waiters)
	s.Waiters = slices.DeleteFunc(s.Waiters, dead)
	s.reaped = s.reaped || len(s.Waiters) < before
}
