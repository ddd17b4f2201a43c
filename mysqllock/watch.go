package mysqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"slices"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/driver/driverkit/rows"
)

const (
	// pollInterval is the least time between two polls, and the time between two polls where the
	// server does not watch for the driver.
	pollInterval = 100 * time.Millisecond

	// watchDuration is how long the server watches in one statement, approximately.
	watchDuration = time.Second

	// minWatchPause and maxWatchPause bound the pause between two checks of the server. The pause
	// is a hundredth of the time since the last signal, so that a hand-over adds little to a
	// short wait, and a long wait costs the server little.
	minWatchPause = 250 * time.Microsecond
	maxWatchPause = 10 * time.Millisecond
)

// watch connects, has the server watch, and handles signals, until there is nothing to watch
// for or the connection fails.
func (d *Driver) watch() error {
	conn, err := d.connectWatcher()
	if err != nil {
		return err
	}
	defer hangUp(conn)
	d.rows.Connected()
	lastHit, repeats, lastSignal := "", 0, time.Now()
	for !d.rows.StopListening() {
		if d.rows.MustYield() {
			return rows.ErrYielded
		}
		pause := min(max(time.Since(lastSignal)/100, minWatchPause), maxWatchPause)
		row, err := d.awaitSignal(conn, pause)
		switch {
		case err != nil:
			return err
		case row == nil:
			continue
		case row.Name == "":
			return errReadOnly // the next connection may lead to the primary
		}
		hit := fmt.Sprint(row.version, row.known, row.Name)
		if lastSignal = time.Now(); hit != lastHit {
			d.rowMutexes.offer(row)
			d.onSignal(row.Name)
			lastHit, repeats = hit, 0
			continue
		}
		// The signal is still in the row: nobody has reacted to it yet.
		if repeats++; repeats%100 == 0 {
			lastHit = ""
		}
		select {
		case <-time.After(min(time.Duration(repeats)*time.Millisecond, pollInterval)):
		case <-d.rows.Life.Done():
		}
	}
	return nil
}

// onSignal handles a signal to this driver in the row of a name: it wakes the first of the
// driver's attempts there. If there is none, the signal is for a holder, or has no effect.
func (d *Driver) onSignal(name string) {
	if d.rows.WakeFirst(name) && len(d.leasesOf(name)) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(d.rows.Life.Context(), rows.HeartbeatTimeout)
	defer cancel()
	// If this fails, the row still signals, and the watcher comes back to it.
	_ = d.change(ctx, name, func(s *state) (bool, error) {
		if s.recalled { // the signal is about a change of another process, so the row is read
			return false, nil
		}
		d.tellHolders(s)
		return d.clearSignal(s) || s.reaped, nil
	})
}

// leasesOf returns the leases of a name whose holders are told of waiters.
func (d *Driver) leasesOf(name string) []*lease {
	return slices.DeleteFunc(d.rows.LeasesOf(), func(l *lease) bool { return l.Req.Name != name })
}

// connectWatcher returns a connection that can watch, and that [hangUp] closes.
func (d *Driver) connectWatcher() (*sql.Conn, error) {
	ctx, cancel := context.WithTimeout(d.rows.Life.Context(), driverkit.CallTimeout)
	defer cancel()
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, `SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED`); err != nil {
		hangUp(conn)
		return nil, err
	}
	return conn, nil
}

// awaitSignal runs one statement, and returns a row that signals this driver, or nil. The row may
// not be committed yet.
func (d *Driver) awaitSignal(conn *sql.Conn, pause time.Duration) (row *state, err error) {
	ctx, cancel := context.WithTimeout(d.rows.Life.Context(), watchDuration+rows.HeartbeatTimeout)
	defer cancel()
	checks := min(int(watchDuration/pause), 1000)
	found, err := conn.QueryContext(ctx, complete(d.sql.Watch, checks, pause.Seconds(), []byte(d.rows.ID)))
	if err != nil {
		return nil, err
	}
	return row, forEachRow(found, func(found *sql.Rows) error {
		s, err := d.scanState(found)
		s.at, row = driver.Now(), &s
		s.start = s.at
		return err
	})
}

// hangUp closes a connection, which may be dead already, instead of returning it to the pool.
func hangUp(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	_ = conn.Close() // it is closed already
}
