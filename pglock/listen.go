package pglock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver/driverkit"
)

// A pooledError means that a connection leads to a pooler and not to the server itself.
type pooledError struct{ announced, actual uint32 }

func (e pooledError) Error() string {
	return fmt.Sprintf("a pooler stands before the server: the connection was told to be process %d and is %d", e.announced, e.actual)
}

// dial opens a connection outside the pool: as [Listen] says, or as the pool does.
func (d *Driver) dial(ctx context.Context) (*pgx.Conn, error) {
	if d.conf.listen != nil {
		return pgx.ConnectConfig(ctx, d.conf.listen.Copy())
	}
	conf := d.pool.Config()
	if conf.BeforeConnect != nil { // it may set a new password
		if err := conf.BeforeConnect(ctx, conf.ConnConfig); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, conf.ConnConfig)
}

// checkDirect returns a pooledError if conn leads to a pooler. Poolers invent the process id that
// a client is told when it connects, because it belongs to the key for cancelling queries.
func checkDirect(ctx context.Context, conn *pgx.Conn) error {
	var pid uint32
	err := conn.QueryRow(ctx, `SELECT pg_backend_pid()`, pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	if err == nil && pid != conn.PgConn().PID() {
		return pooledError{conn.PgConn().PID(), pid}
	}
	return err
}

// runListener keeps a connection for notifications open while it is needed. The pause before it
// connects again doubles each time. It grows less after a connection that worked: without
// notifications, a holder learns only at its next renewal that its lease was broken.
func (d *Driver) runListener() {
	const shortest, longest, longestAfterUse = 50 * time.Millisecond, 5 * time.Second, 500 * time.Millisecond
	pause := shortest
	for {
		began := time.Now()
		err := d.listenOnce()
		if err == nil || d.life.Over() {
			return
		}
		pause *= 2
		switch wasConnected := d.registry.setConnected(false); {
		case time.Since(began) > longest:
			pause = shortest
		case wasConnected:
			pause = min(pause, longestAfterUse)
		}
		if _, pooled := err.(pooledError); pooled { //nolint:errorlint // checkDirect returns it unwrapped
			pause = longest
		}
		select {
		case <-time.After(min(pause, longest)):
		case <-d.life.Done():
			return
		}
		if d.registry.stopListenerIfIdle() {
			return
		}
	}
}

// listenOnce connects and receives notifications, until the connection is no longer needed or
// fails.
func (d *Driver) listenOnce() error {
	conn, err := d.connectListener()
	if err != nil {
		return err
	}
	defer hangUp(conn)
	d.registry.setConnected(true)
	d.verifyLeases() // notifications may have been missed before
	for {
		err := d.receive(conn, idleTimeout)
		if err != nil {
			return err
		}
		if d.registry.stopListenerIfIdle() {
			return nil
		}
		ctx, cancel := context.WithTimeout(d.life.Context(), heartbeatTimeout)
		err = conn.Ping(ctx) // a dead connection that was not closed receives nothing
		cancel()
		if err != nil {
			return err
		}
	}
}

// verifyLeases has the verifier check whether the leases with these nonces have ended. Without
// nonces it checks all leases.
func (d *Driver) verifyLeases(nonces ...string) {
	w := &d.registry
	leases := w.leasesOf(nonces...)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range leases {
		w.unverified[l.nonce] = true
	}
	if len(w.unverified) > 0 && !w.verifying {
		w.verifying = d.life.Go(d.runVerifier)
	}
}

// runVerifier checks the unverified leases until none is left, with one statement for all of them
// at a time. A lease that can't be verified is checked again after pollInterval.
func (d *Driver) runVerifier() {
	for {
		nonces, wait := d.registry.unverifiedLeases()
		if len(nonces) == 0 {
			return
		}
		select {
		case <-time.After(wait):
		case <-d.life.Done():
			return
		}
		d.verifyOnce()
	}
}

// unverifiedLeases returns the nonces of the leases to be checked, and the time to wait before
// that.
func (w *waiterRegistry) unverifiedLeases() (nonces []string, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.unverified, func(nonce string, _ bool) bool { return w.leases[nonce] == nil })
	w.verifying = len(w.unverified) > 0
	return slices.Collect(maps.Keys(w.unverified)), time.Until(w.lastVerified.Add(pollInterval))
}

// verifyOnce ends the unverified leases that are no longer in their rows, and tells the others if
// another process waits for them.
func (d *Driver) verifyOnce() {
	w := &d.registry
	w.mu.Lock()
	w.lastVerified = time.Now()
	nonces := slices.Collect(maps.Keys(w.unverified))
	clear(w.unverified) // a notification from now on marks its lease again
	w.mu.Unlock()
	leases := w.leasesOf(nonces...)
	names := map[string]bool{}
	for _, l := range leases {
		names[l.req.Name] = true
	}
	ctx, cancel := context.WithTimeout(d.life.Context(), heartbeatTimeout)
	defer cancel()
	snapshot, malformed, err := d.readStates(ctx, d.sql.read, slices.Collect(maps.Keys(names)))
	for _, l := range leases {
		switch s := snapshot[l.req.Name]; {
		case malformed[l.req.Name] != nil: // the next renewal reports it
		case err != nil, !s.hasHolder(l.nonce) && !l.markBroken():
			w.mu.Lock()
			w.unverified[l.nonce] = true
			w.mu.Unlock()
		case s.othersWait(d.channel()):
			l.notifyWanted()
		}
	}
}

// connectListener returns a connection that listens.
func (d *Driver) connectListener() (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(d.life.Context(), driverkit.CallTimeout)
	defer cancel()
	conn, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	if err = checkDirect(ctx, conn); err == nil {
		_, err = conn.Exec(ctx, `LISTEN `+d.channel(), pgx.QueryExecModeSimpleProtocol)
	}
	if err != nil {
		hangUp(conn)
		return nil, err
	}
	return conn, nil
}

// receive handles notifications for the given duration.
func (d *Driver) receive(conn *pgx.Conn, duration time.Duration) error {
	ctx, cancel := context.WithTimeout(d.life.Context(), duration)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(ctx)
		switch {
		case err == nil:
			d.onNotification(n.Payload)
		case ctx.Err() != nil && !conn.IsClosed():
			return nil
		default:
			return err
		}
	}
}

// onNotification handles a notification: a letter for what has happened, and the nonce of the
// attempt that is concerned. Every role of the database can send one, so it is only a hint: the
// driver checks the row before it believes it, and a flood of notifications causes no more
// statements than waiting does.
func (d *Driver) onNotification(payload string) {
	if payload == "" {
		return
	}
	switch nonce := payload[1:]; payload[0] {
	case 'g': // the lock can be granted
		d.registry.wake(nonce)
	case 'w': // another process waits for the lock
		d.registry.notifyWanted(nonce)
	case 'b': // the lease was broken
		d.verifyLeases(nonce)
	}
}

// stopListenerIfIdle marks the listener as stopped, and returns true, if it has not been needed
// for idleTimeout.
func (w *waiterRegistry) stopListenerIfIdle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting)+len(w.leases) > 0 || time.Since(w.idleSince) < idleTimeout {
		return false
	}
	w.listening, w.connected = false, false
	return true
}

// hangUp closes a connection, which may be dead already.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), driverkit.CancelDelay)
	defer cancel()
	_ = conn.Close(ctx) // the connection is of no use in any case
}
