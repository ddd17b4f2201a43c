package mysqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"strings"
	"time"

	"github.com/sniblock/snib/internal/life"
)

const (
	// watchFor is how long the server watches in one statement, about.
	watchFor = time.Second

	// soonest and latest bound the pause between two looks of the server. In between it is a hundredth of the time for
	// which nothing has happened, so that a hand-over takes little of the wait, and a long wait little of the server.
	soonest = 250 * time.Microsecond
	latest  = 10 * time.Millisecond
)

// watch keeps the connection that watches as long as it is of use.
func (d *Driver) watch() {
	const shortest, longest = 50 * time.Millisecond, 5 * time.Second
	pause := shortest
	for {
		began := time.Now()
		err := d.watchOut()
		if err == nil || d.life.Over() {
			return
		}
		d.waits.seen(false)
		if pause *= 2; time.Since(began) > longest {
			pause = shortest // it was of use
		}
		if d.sole() {
			pause = longest
		}
		select {
		case <-time.After(min(pause, longest)):
		case <-d.life.Done():
			return
		}
		if d.waits.blind() {
			return
		}
	}
}

// sole reports whether the user's db has no connection to spare for watching.
func (d *Driver) sole() bool {
	most := d.db.Stats().MaxOpenConnections
	return most == 1 || most == 2 && d.session != nil
}

// watchOut has the server watch, and passes calls on, until there is nothing to watch for or the connection fails.
func (d *Driver) watchOut() error {
	if d.sole() {
		return sql.ErrConnDone
	}
	conn, stmt, err := d.watcher()
	if err != nil {
		return err
	}
	defer hangUp(conn)
	d.waits.seen(true)
	last, again, calm := "", 0, time.Now()
	for !d.waits.blind() {
		pause := min(max(time.Since(calm)/100, soonest), latest)
		hit, err := d.watchFor(stmt, pause)
		if err != nil {
			return err
		}
		if hit == "" {
			continue
		}
		if calm = time.Now(); hit != last {
			_, name, _ := strings.Cut(hit, " ")
			d.called(name)
			last, again = hit, 0
			continue
		}
		// Who was called has not done anything yet.
		if again++; again%100 == 0 {
			last = ""
		}
		select {
		case <-time.After(min(time.Duration(again)*time.Millisecond, pollEvery)):
		case <-d.life.Done():
		}
	}
	return nil
}

// watcher returns a connection that can watch.
func (d *Driver) watcher() (*sql.Conn, *sql.Stmt, error) {
	ctx, cancel := context.WithTimeout(d.life.Context(), life.Longest)
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

// watchFor runs one statement, and returns the version and the name of a row that calls us, or "".
func (d *Driver) watchFor(stmt *sql.Stmt, pause time.Duration) (hit string, err error) {
	ctx, cancel := context.WithTimeout(d.life.Context(), watchFor+waiterLife)
	defer cancel()
	looks := min(max(int(watchFor/pause), 1), 1000)
	rows, err := stmt.QueryContext(ctx, []byte(d.id), looks, pause.Seconds())
	if err != nil {
		return "", err
	}
	return hit, each(rows, func(rows *sql.Rows) error { return rows.Scan(&hit) })
}

// dial takes a connection of the user's pool, for statements that the user's settings must not cut short. It is not given
// back: it ends with [hangUp].
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
		_, _ = conn.ExecContext(ctx, set) // MariaDB has the one, MySQL the other
	}
	return conn, nil
}

// hangUp closes a connection, which may be dead, instead of giving it back to the pool.
func hangUp(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	_ = conn.Close() // it is closed by now
}

// blind ends the watcher, and reports so, if there has been nothing to watch for for a while.
func (w *waits) blind() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting)+len(w.leases) > 0 || time.Since(w.idle) < linger {
		return false
	}
	w.watching, w.watched = false, false
	return true
}
