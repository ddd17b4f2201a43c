package pglock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/driver/driverkit/rows"
)

const (
	// pollInterval is the least time between two polls, and the time between two polls where the
	// server can't notify the driver.
	pollInterval = 125 * time.Millisecond

	// listenPingInterval is how often the driver checks the connection on which it listens.
	listenPingInterval = 5 * time.Second
)

// A pooledError means that a connection leads to a pooler and not to the server itself.
type pooledError struct{ announced, actual uint32 }

func (e pooledError) Error() string {
	return fmt.Sprintf("a pooler stands before the server: the connection was told to be process %d and is %d",
		e.announced, e.actual)
}

// Is reports that a pooler passes no notifications on.
func (e pooledError) Is(target error) bool { return target == rows.ErrCantListen }

// dial opens a connection outside the pool: as listen says, or as the pool does if that is nil. If
// it leads to a pooler, the error is a pooledError.
func dial(ctx context.Context, pool *pgxpool.Pool, listen *pgx.ConnConfig) (*pgx.Conn, error) {
	conf := pool.Config()
	if listen != nil {
		conf.ConnConfig = listen.Copy()
	}
	if err := beforeConnect(conf.BeforeConnect)(ctx, conf.ConnConfig); err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, conf.ConnConfig)
	if err != nil {
		return nil, err
	}
	if err := checkDirect(ctx, conn); err != nil {
		hangUp(conn)
		return nil, err
	}
	return conn, nil
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

// listen connects and receives notifications, until the connection is no longer needed or fails.
func (d *Driver) listen() error {
	conn, err := d.connectListener()
	if err != nil {
		return err
	}
	defer hangUp(conn)
	var verifying sync.WaitGroup
	defer verifying.Wait()
	listening, end := context.WithCancel(d.rows.Life.Context())
	defer end()
	verifying.Go(func() { d.verify(listening) })
	d.rows.Connected()
	d.verifyLeases() // notifications may have been missed before
	for pinged := time.Now(); ; {
		ctx, cancel := context.WithTimeout(listening, rows.HeartbeatInterval)
		err := d.receive(ctx, conn)
		cancel()
		if err != nil {
			return err
		}
		if d.rows.StopListening() {
			return nil
		}
		if d.rows.MustYield() {
			return rows.ErrYielded
		}
		if time.Since(pinged) < listenPingInterval {
			continue
		}
		pinged = time.Now()
		ctx, cancel = context.WithTimeout(listening, rows.HeartbeatTimeout)
		err = conn.Ping(ctx) // a dead connection that was not closed receives nothing
		cancel()
		if err != nil {
			return err
		}
	}
}

// A verifier checks leases that may have ended.
type verifier struct {
	mu         sync.Mutex
	unverified map[string]bool // nonces of leases that may have ended
	wake       chan struct{}   // capacity 1: full while nobody takes what is unverified
}

// verifyLeases has the verifier check whether the leases with these nonces have ended. Without
// nonces it checks all leases.
func (d *Driver) verifyLeases(nonces ...string) {
	for _, l := range d.rows.LeasesOf(nonces...) {
		d.verifier.mark(l.Nonce)
	}
}

// mark marks a lease as unverified.
func (v *verifier) mark(nonce string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.unverified) == 0 {
		v.wake <- struct{}{}
	}
	v.unverified[nonce] = true
}

// take returns the nonces of the unverified leases. A notification from now on marks its lease
// again.
func (v *verifier) take() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	nonces := slices.Collect(maps.Keys(v.unverified))
	clear(v.unverified)
	return nonces
}

// verify checks the unverified leases until ctx is done, with one statement for all of them at a
// time. A lease that can't be verified is checked again after pollInterval.
func (d *Driver) verify(ctx context.Context) {
	for {
		select {
		case <-d.verifier.wake:
			d.verifyOnce(ctx)
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return
		}
	}
}

// verifyOnce ends the unverified leases that are no longer in their rows, and tells the others if
// another process waits for them.
func (d *Driver) verifyOnce(ctx context.Context) {
	names := map[string]bool{}
	leases := d.rows.LeasesOf(d.verifier.take()...)
	for _, l := range leases {
		names[l.Req.Name] = true
	}
	ctx, cancel := context.WithTimeout(ctx, rows.HeartbeatTimeout)
	defer cancel()
	found, err := d.readStates(ctx, d.sql.Verify, slices.Collect(maps.Keys(names)))
	for _, l := range leases {
		s := found[l.Req.Name]
		if s == nil {
			s = &state{}
		}
		held := slices.ContainsFunc(s.Holders, func(h entry) bool { return h.Nonce == l.Nonce && !h.Kept })
		switch {
		case s.Err != nil: // the next renewal reports it
		case err != nil:
			d.verifier.mark(l.Nonce)
		case !held:
			l.MarkBroken()
		case s.OthersWait(d.rows.ID):
			l.NotifyWanted()
		}
	}
}

// connectListener returns a connection that listens.
func (d *Driver) connectListener() (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(d.rows.Life.Context(), driverkit.CallTimeout)
	defer cancel()
	conn, err := dial(ctx, d.pool, d.conf.listen)
	if err != nil {
		return nil, err
	}
	if _, err = conn.Exec(ctx, `LISTEN `+d.channel(), pgx.QueryExecModeSimpleProtocol); err != nil {
		hangUp(conn)
		return nil, err
	}
	return conn, nil
}

// receive handles notifications until ctx is done.
func (d *Driver) receive(ctx context.Context, conn *pgx.Conn) error {
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
		d.rows.Wake(nonce)
	case 'w': // another process waits for the lock
		for _, l := range d.rows.LeasesOf(nonce) {
			l.NotifyWanted()
		}
	case 'b': // the lease was broken
		d.verifyLeases(nonce)
	}
}

// hangUp closes a connection, which may be dead already.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), driverkit.CancelDelay)
	defer cancel()
	_ = conn.Close(ctx) // the connection is of no use in any case
}
