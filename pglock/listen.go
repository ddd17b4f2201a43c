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
	d.catchUp()
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

// catchUp tells holders of those who began to wait while nobody listened. If it fails, their renewals do.
func (d *Driver) catchUp() {
	told := map[string][]*lease{}
	d.waits.mu.Lock()
	for _, l := range d.waits.leases {
		told[l.req.Name] = append(told[l.req.Name], l)
	}
	d.waits.mu.Unlock()
	if len(told) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(d.life.Context(), waiterLife)
	defer cancel()
	_ = d.query(ctx, d.sql.look, []any{slices.Collect(maps.Keys(told))}, func(rows pgx.Rows) error {
		s, err := scanState(rows)
		if s.strangers(d.channel()) {
			for _, l := range told[s.name] {
				l.wanted()
			}
		}
		return err
	})
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

// notified acts on a notification: a letter for what has happened, and the nonce of the attempt that it is about.
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
		if d.session != nil {
			d.session.broken(nonce)
		}
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
