package pglock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/internal/life"
)

// errPooled means that a connection does not lead to the server itself.
type errPooled struct{ told, real uint32 }

func (e errPooled) Error() string {
	return fmt.Sprintf("a pooler stands before the server: the connection was told to be process %d and is %d", e.told, e.real)
}

// dial opens a connection that is not the pool's: as [Listen] says, or as the pool would.
func (d *Driver) dial(ctx context.Context) (*pgx.Conn, error) {
	if d.conf.listen != nil {
		return pgx.ConnectConfig(ctx, d.conf.listen.Copy())
	}
	conf := d.pool.Config()
	if conf.BeforeConnect != nil { // it may know a fresh password
		if err := conf.BeforeConnect(ctx, conf.ConnConfig); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, conf.ConnConfig)
}

// direct reports, as an errPooled, that conn leads to a pooler: those make up the process id that a client is told when
// it connects, because it belongs to the key with which queries are cancelled.
func direct(ctx context.Context, conn *pgx.Conn) error {
	var pid uint32
	err := conn.QueryRow(ctx, `SELECT pg_backend_pid()`, pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	if err == nil && pid != conn.PgConn().PID() {
		return errPooled{conn.PgConn().PID(), pid}
	}
	return err
}

// listen keeps the connection for notifications as long as it is of use.
func (d *Driver) listen() {
	const shortest, longest = 50 * time.Millisecond, 5 * time.Second
	pause := shortest
	for {
		began := time.Now()
		err := d.hearOut()
		if err == nil || d.life.Over() {
			return
		}
		d.waits.hear(false)
		if pause *= 2; time.Since(began) > longest {
			pause = shortest // it was of use
		}
		if _, pooled := err.(errPooled); pooled { //nolint:errorlint // direct returns it as it is
			pause = longest
		}
		select {
		case <-time.After(min(pause, longest)):
		case <-d.life.Done():
			return
		}
		if d.waits.deaf() {
			return
		}
	}
}

// hearOut connects and passes notifications on, until it is of no use any more or the connection fails.
func (d *Driver) hearOut() error {
	conn, err := d.hearing()
	if err != nil {
		return err
	}
	defer hangUp(conn)
	d.waits.hear(true)
	d.doubt() // of what happened while nobody listened
	for {
		err := d.hearFor(conn, linger)
		if err != nil {
			return err
		}
		if d.waits.deaf() {
			return nil
		}
		ctx, cancel := context.WithTimeout(d.life.Context(), waiterLife)
		err = conn.Ping(ctx) // a connection that is dead and does not know it hears nothing
		cancel()
		if err != nil {
			return err
		}
	}
}

// doubt has the store asked whether the leases with these nonces, or all, have ended.
func (d *Driver) doubt(nonces ...string) {
	w := &d.waits
	told := w.told(nonces...)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range told {
		w.doubted[l.nonce] = true
	}
	if len(w.doubted) > 0 && !w.checking {
		w.checking = d.life.Go(d.checkDoubted)
	}
}

// checkDoubted looks after the leases that are in doubt until there are none, with one statement for all of them. What it can't
// find out it asks again, pollEvery later.
func (d *Driver) checkDoubted() {
	for {
		nonces, wait := d.waits.inDoubt()
		if len(nonces) == 0 {
			return
		}
		select {
		case <-time.After(wait):
		case <-d.life.Done():
			return
		}
		d.checkOnce()
	}
}

// inDoubt returns the leases to be checked, if there are any, and in which time.
func (w *waits) inDoubt() (nonces []string, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.doubted, func(nonce string, _ bool) bool { return w.leases[nonce] == nil })
	w.checking = len(w.doubted) > 0
	return slices.Collect(maps.Keys(w.doubted)), time.Until(w.checked.Add(pollEvery))
}

// checkOnce ends the leases in doubt that are not in their rows any more, and tells the others if they are waited for.
func (d *Driver) checkOnce() {
	w := &d.waits
	w.mu.Lock()
	w.checked = time.Now()
	nonces := slices.Collect(maps.Keys(w.doubted))
	clear(w.doubted) // who notifies from now on is heard
	w.mu.Unlock()
	leases := w.told(nonces...)
	names := map[string]bool{}
	for _, l := range leases {
		names[l.req.Name] = true
	}
	ctx, cancel := context.WithTimeout(d.life.Context(), waiterLife)
	defer cancel()
	seen := map[string]state{}
	err := d.query(ctx, d.sql.look, []any{slices.Collect(maps.Keys(names))}, func(rows pgx.Rows) error {
		s, err := scanState(rows)
		seen[s.name] = s
		return err
	})
	for _, l := range leases {
		switch s := seen[l.req.Name]; {
		case err != nil, !s.holds(l.nonce) && !l.broken():
			w.mu.Lock()
			w.doubted[l.nonce] = true
			w.mu.Unlock()
		case s.strangers(d.channel()):
			l.wanted()
		}
	}
}

// hearing returns a connection that listens.
func (d *Driver) hearing() (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(d.life.Context(), life.Longest)
	defer cancel()
	conn, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	if err = direct(ctx, conn); err == nil {
		_, err = conn.Exec(ctx, `LISTEN `+d.channel(), pgx.QueryExecModeSimpleProtocol)
	}
	if err != nil {
		hangUp(conn)
		return nil, err
	}
	return conn, nil
}

// hearFor passes notifications on for a while.
func (d *Driver) hearFor(conn *pgx.Conn, while time.Duration) error {
	ctx, cancel := context.WithTimeout(d.life.Context(), while)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(ctx)
		switch {
		case err == nil:
			d.notified(n.Payload)
		case ctx.Err() != nil && !conn.IsClosed():
			return nil
		default:
			return err
		}
	}
}

// notified acts on a notification: a letter for what has happened, and the nonce of the attempt that it is about. Every role
// of the database can send one, so it is a hint and no more: what it says is looked up, and a flood of them costs no more
// statements than waiting does.
func (d *Driver) notified(payload string) {
	if payload == "" {
		return
	}
	switch nonce := payload[1:]; payload[0] {
	case 'g': // the lock can be granted
		d.waits.wake(nonce)
	case 'w': // another process waits
		d.waits.want(nonce)
	case 'b': // the hold was broken
		d.doubt(nonce)
	}
}

// deaf ends the listener, and reports so, if there has been nothing to hear for a while.
func (w *waits) deaf() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting)+len(w.leases) > 0 || time.Since(w.idle) < linger {
		return false
	}
	w.listening, w.connected = false, false
	return true
}

// hangUp closes a connection, which may be dead.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), life.Moment)
	defer cancel()
	_ = conn.Close(ctx) // there is nothing left to lose
}
