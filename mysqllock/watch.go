package mysqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"strings"
	"time"

	"github.com/sniblock/snib/driver/driverkit"
)

const (
	// watchDuration is how long the server watches in one statement, approximately.
	watchDuration = time.Second

	// minWatchPause and maxWatchPause bound the pause between two checks of the server. The pause
	// is a hundredth of the time since the last signal, so that a hand-over adds little to a
	// short wait, and a long wait costs the server little.
	minWatchPause = 250 * time.Microsecond
	maxWatchPause = 10 * time.Millisecond
)

// runWatcher keeps a connection for watching open while it is needed.
func (d *Driver) runWatcher() {
	const shortest, longest = 50 * time.Millisecond, 5 * time.Second
	pause := shortest
	for {
		began := time.Now()
		err := d.watchOnce()
		if err == nil || d.life.Over() {
			return
		}
		d.registry.setConnected(false)
		if pause *= 2; time.Since(began) > longest {
			pause = shortest // the connection was useful
		}
		if d.lacksSpareConnection() {
			pause = longest
		}
		select {
		case <-time.After(min(pause, longest)):
		case <-d.life.Done():
			return
		}
		if d.registry.stopWatcherIfIdle() {
			return
		}
	}
}

// lacksSpareConnection reports whether the user's db has no connection to spare for watching.
func (d *Driver) lacksSpareConnection() bool {
	most := d.db.Stats().MaxOpenConnections
	return most == 1 || most == 2 && d.session != nil
}

// watchOnce connects, has the server watch, and handles signals, until there is nothing to watch
// for or the connection fails.
func (d *Driver) watchOnce() error {
	if d.lacksSpareConnection() {
		return sql.ErrConnDone
	}
	conn, stmt, err := d.connectWatcher()
	if err != nil {
		return err
	}
	defer hangUp(conn)
	d.registry.setConnected(true)
	lastHit, repeats, lastSignal := "", 0, time.Now()
	for !d.registry.stopWatcherIfIdle() {
		pause := min(max(time.Since(lastSignal)/100, minWatchPause), maxWatchPause)
		hit, err := d.awaitSignal(stmt, pause)
		if err != nil {
			return err
		}
		if hit == "" {
			continue
		}
		if lastSignal = time.Now(); hit != lastHit {
			_, name, _ := strings.Cut(hit, " ")
			d.onSignal(name)
			lastHit, repeats = hit, 0
			continue
		}
		// The signal is still in the row: nobody has reacted to it yet.
		if repeats++; repeats%100 == 0 {
			lastHit = ""
		}
		select {
		case <-time.After(min(time.Duration(repeats)*time.Millisecond, pollInterval)):
		case <-d.life.Done():
		}
	}
	return nil
}

// connectWatcher returns a connection that can watch, and the prepared statement.
func (d *Driver) connectWatcher() (*sql.Conn, *sql.Stmt, error) {
	ctx, cancel := context.WithTimeout(d.life.Context(), driverkit.CallTimeout)
	defer cancel()
	conn, err := d.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	stmt, err := conn.PrepareContext(ctx, d.sql.watch)
	if err != nil {
		hangUp(conn)
	}
	return conn, stmt, err
}

// awaitSignal runs one statement, and returns the version and the name of a row that signals this
// driver, or "".
func (d *Driver) awaitSignal(stmt *sql.Stmt, pause time.Duration) (hit string, err error) {
	ctx, cancel := context.WithTimeout(d.life.Context(), watchDuration+heartbeatTimeout)
	defer cancel()
	looks := min(max(int(watchDuration/pause), 1), 1000)
	rows, err := stmt.QueryContext(ctx, []byte(d.id), looks, pause.Seconds())
	if err != nil {
		return "", err
	}
	return hit, forEachRow(rows, func(rows *sql.Rows) error { return rows.Scan(&hit) })
}

// dial takes a connection out of the user's pool, and removes the limits that the user's settings
// put on statements. The connection is not returned to the pool: [hangUp] closes it.
func (d *Driver) dial(ctx context.Context) (*sql.Conn, error) {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	for _, set := range []string{
		`SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED`,
		`SET SESSION autocommit = 1`,
	} {
		if _, err := conn.ExecContext(ctx, set); err != nil {
			hangUp(conn)
			return nil, err
		}
	}
	for _, set := range []string{`SET SESSION max_statement_time = 0`, `SET SESSION max_execution_time = 0`} {
		_, _ = conn.ExecContext(ctx, set) // MariaDB has the first one, MySQL the second
	}
	return conn, nil
}

// hangUp closes a connection, which may be dead already, instead of returning it to the pool.
func hangUp(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	_ = conn.Close() // it is closed already
}

// stopWatcherIfIdle marks the watcher as stopped, and returns true, if it has not been needed for
// idleTimeout.
func (w *waiterRegistry) stopWatcherIfIdle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting)+len(w.leases) > 0 || time.Since(w.idleSince) < idleTimeout {
		return false
	}
	w.watching, w.connected = false, false
	return true
}
