package pglock

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

var (
	// errSessionOver means that a session has ended, and what it held with it.
	errSessionOver = errors.New("its session is over")

	errSilent    = errors.New("the server does not answer")
	errNotNeeded = errors.New("nobody needs the connection any more")
)

// A link is a connection and the server's session on it. Calls are pipelined: the server answers
// them in their order, and one goroutine reads all answers, so it notices at once when the server
// ends the session. Another one writes, so that no caller waits for a connection that is stuck.
type link struct {
	s    *Session
	conn *pgconn.PgConn // connects and cancels; the link itself reads and writes
	wake chan struct{}  // capacity 1: there is something to be written
	over chan struct{}  // closed when the session is over

	// Guarded by Session.mu:
	calls        []*call // without an answer, in their order
	unwritten    []byte  // the messages of calls
	held         map[int64]*sessionLease
	waits        bool           // for its only lease in the server's queue, or has waited in vain
	lastAnswered driver.Instant // when the last call was sent that the server has answered
}

// What a call asks for, see session_ask.sql.
const (
	askTry  = "try"
	askWait = "wait"
	askFree = "free"
	askPing = "ping"
)

// A call asks the server for something. If more must follow before the caller may have the result,
// the same call asks for that, too.
type call struct {
	ask   string
	lease *sessionLease // nil if it only pings
	sent  driver.Instant
	tries int           // how often askFree has failed
	done  chan struct{} // closed when there is a result
	err   error
}

func newCall(ask string, h *sessionLease) *call {
	return &call{ask: ask, lease: h, done: make(chan struct{})}
}

func (c *call) finish(err error) {
	c.err = err
	close(c.done)
}

// await returns the result of a call, or the cause of ctx if that ends first.
func (c *call) await(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// open opens a connection, and makes a session of it.
func (s *Session) open(ctx context.Context) (*link, error) {
	sent := driver.Now()
	conn, err := dial(ctx, s.pool, s.conf.listen)
	if err == nil {
		if err = s.setUp(ctx, conn); err == nil {
			return &link{s: s, conn: conn.PgConn(), wake: make(chan struct{}, 1), over: make(chan struct{}),
				held: map[int64]*sessionLease{}, lastAnswered: sent}, nil
		}
		hangUp(conn)
	}
	switch {
	case errors.As(err, new(pooledError)):
		return nil, driver.Invalidf("connection: %w; the locks of a session belong to the server's connection, which a pooler lends to "+
			"its next client; connect past it with the option Listen, or use rows (New)", err)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case code(err) == undefinedObject:
		return nil, driver.Invalidf("server: %w; before PostgreSQL 14 a server does not end the session of a host that has vanished; "+
			"use rows (New)", err)
	}
	return nil, explain(err)
}

// setUp makes a session of a connection.
func (s *Session) setUp(ctx context.Context, conn *pgx.Conn) error {
	third := s.conf.sessionTimeout / 3
	_, err := conn.Exec(ctx, s.sql.SessionSetUp, fmt.Sprint(s.conf.sessionTimeout.Milliseconds()),
		fmt.Sprint((third + time.Second - 1).Truncate(time.Second).Seconds()), // rounded up: we must notice first
		sessionName(conn.PgConn().ParameterStatus("application_name")))
	if err != nil {
		return err
	}
	// A server on a system that can't check a connection while it waits refuses this.
	_, err = conn.Exec(ctx, fmt.Sprintf("SET client_connection_check_interval = %d", third.Milliseconds()), pgx.QueryExecModeSimpleProtocol)
	if err != nil && code(err) == "" {
		return err
	}
	if _, err = conn.PgConn().Prepare(ctx, "snib", s.sql.SessionAsk, nil); err != nil {
		return err
	}
	return conn.PgConn().SyncConn(ctx)
}

// request sends a call for a lease that is wanted. The caller must hold Session.mu.
func (l *link) request(ask string, h *sessionLease) *call {
	h.link, l.held[h.key] = l, h
	l.waits = ask == askWait
	return l.send(newCall(ask, h))
}

// send sends a call. The caller must hold Session.mu.
func (l *link) send(c *call) *call {
	ask, key := c.ask, int64(0)
	if h := c.lease; h != nil {
		key = h.key
		if h.req.Shared {
			ask += " shared"
		}
	}
	binaryFormat := []int16{pgx.BinaryFormatCode}
	bind := pgproto3.Bind{PreparedStatement: "snib", ParameterFormatCodes: binaryFormat, ResultFormatCodes: binaryFormat,
		Parameters: [][]byte{[]byte(ask), binary.BigEndian.AppendUint64(nil, uint64(key))}}
	l.unwritten, _ = bind.Encode(l.unwritten) // errors are for messages that are too long
	l.unwritten, _ = (&pgproto3.Execute{}).Encode(l.unwritten)
	l.unwritten, _ = (&pgproto3.Sync{}).Encode(l.unwritten)
	c.sent = driver.Now()
	l.calls = append(l.calls, c)
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return c
}

// run serves the link until the session is over, and then closes the connection.
func (l *link) run() {
	var all sync.WaitGroup
	all.Go(l.write)
	all.Go(l.keep)
	l.read()
	all.Wait()
}

// write writes what is to be sent.
func (l *link) write() {
	for messages := []byte(nil); ; {
		select {
		case <-l.wake:
		case <-l.over:
			return
		}
		l.s.mu.Lock()
		messages, l.unwritten = l.unwritten, messages[:0]
		l.s.mu.Unlock()
		if _, err := l.conn.Conn().Write(messages); err != nil {
			l.s.end(l, err)
		}
	}
}

// read reads answers.
func (l *link) read() {
	front := pgproto3.NewFrontend(l.conn.Conn(), nil)
	var a answer
	for {
		msg, err := front.Receive()
		switch m := msg.(type) {
		case *pgproto3.DataRow:
			err = a.parse(m.Values)
		case *pgproto3.ErrorResponse:
			a.err = pgconn.ErrorResponseToPgError(m)
		case *pgproto3.ReadyForQuery:
			err = l.onAnswer(a)
			a = answer{}
		}
		if err != nil {
			l.s.end(l, cmp.Or(a.err, err)) // the server says why before it closes the connection
			return
		}
	}
}

// An answer is what session_ask.sql reads, or the server's error.
type answer struct {
	ok            bool
	pid           uint32
	clock         time.Time
	refusesWrites bool
	err           error
}

// parse reads the columns in their binary formats: boolean, integer, timestamptz, boolean.
func (a *answer) parse(columns [][]byte) error {
	b := bytes.Join(columns, nil)
	if len(b) != 1+4+8+1 {
		return fmt.Errorf("the server's answer can't be read: %x", b)
	}
	const year2000 = 946_684_800_000_000 // in microseconds since 1970
	a.ok, a.pid, a.refusesWrites = b[0] == 1, binary.BigEndian.Uint32(b[1:]), b[13] == 1
	a.clock = time.UnixMicro(int64(binary.BigEndian.Uint64(b[5:])) + year2000)
	return nil
}

// onAnswer gives the first call its answer, or has it ask for what must follow. It returns an error
// if the session must end. An error of the server ends one call, and not the session.
func (l *link) onAnswer(a answer) error {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(l.calls) == 0 {
		return nil // the session is over
	}
	c := l.calls[0]
	h := c.lease
	switch {
	case a.err == nil && a.pid != l.conn.PID(): // a pooler may send each statement to another server
		return pooledError{l.conn.PID(), a.pid}
	case a.err == nil && a.refusesWrites:
		return errDemoted
	case a.err != nil && c.ask == askFree && c.tries == 2:
		return a.err // better to lose all locks, and to tell their holders, than to keep one that nobody holds
	}
	l.calls, l.lastAnswered = l.calls[1:], c.sent
	next := ""
	switch {
	case h == nil:
		c.finish(a.err)
	case a.err != nil && c.ask == askFree:
		c.tries++
		next = askFree
	case a.err != nil:
		// The session may have the lock all the same: an advisory lock stays when its statement is
		// rolled back, as by a cancellation that comes late.
		c.err, next = a.err, askFree
	case c.ask == askFree:
		delete(l.held, h.key)
		if h.state == leaseLeaving {
			h.state = leaseFreed
		}
		c.finish(c.err)
	case !a.ok:
		delete(l.held, h.key)
		c.finish(driver.ErrHeld)
	case h.state == leaseLeaving:
		next = askFree
	case c.ask == askWait && driver.Now().Sub(c.sent) > s.conf.sessionTimeout/10:
		// The server counts silence from when it gave us the lock: another request, sent after that,
		// has the lease begin.
		l.lastAnswered, next = driver.Now(), askPing
	default:
		s.lastToken = driver.NextToken(s.lastToken, a.clock) // two readers may see one microsecond
		h.token, h.since, h.grantedAt, h.state = s.lastToken, c.sent, driver.Now(), leaseHeld
		l.waits = false
		c.finish(nil)
	}
	if next != "" {
		c.ask = next
		l.send(c)
	}
	return nil
}

// keep checks the link, and closes the connection when the session is over.
func (l *link) keep() {
	for wait := time.Duration(0); wait >= 0; {
		select {
		case <-time.After(wait):
			wait = l.check()
		case <-l.over:
			wait = -1
		}
	}
	if l.waits {
		l.cancelWait()
	}
	_ = l.conn.Conn().Close() // of no use in any case
}

// check asks the server at least every third of the timeout whether all is well, and returns the
// time until the next check. It ends the link if nobody needs it any more, or if it has had no
// answer for so long that the server may soon end the session: the holders must know a tenth of the
// timeout earlier.
func (l *link) check() time.Duration {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	interval := min(s.conf.sessionTimeout/3, idleTimeout)
	left := l.lastAnswered.Add(s.conf.sessionTimeout * 9 / 10).Left(driver.Now())
	switch {
	case len(l.calls) > 0 && l.calls[0].ask == askWait:
		return interval // it is answered when another session releases the lock
	case left <= 0:
		s.endLocked(l, errSilent)
	case len(l.held) == 0 && slices.Index(s.links, l) > 0:
		s.endLocked(l, errNotNeeded)
	default:
		l.send(newCall(askPing, nil))
	}
	return max(0, min(left, interval))
}

// cancelWait has the server end the statement with which the link waits.
func (l *link) cancelWait() {
	ctx, cancel := context.WithTimeout(context.Background(), driverkit.CleanupTimeout)
	defer cancel()
	_ = l.conn.CancelRequest(ctx) // else the server notices that the connection is closed
}

// end ends a session, unless it has ended.
func (s *Session) end(l *link, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(l, cause)
}

// endLocked is end for callers that hold s.mu. The holders are told before the server frees their
// locks, if it has not done so already, and before other calls learn of the end.
func (s *Session) endLocked(l *link, cause error) {
	i := slices.Index(s.links, l)
	if i < 0 {
		return
	}
	s.links = slices.Delete(s.links, i, i+1)
	for _, h := range l.held {
		if h.state == leaseHeld && h.req.OnLost != nil {
			h.req.OnLost(fmt.Errorf("%w: %w: %w", driver.ErrLost, errSessionOver, cause))
		}
		if h.state != leaseFreed {
			h.state = leaseLost
		}
	}
	for _, c := range l.calls {
		c.finish(fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, errSessionOver, cause))
	}
	l.waits = l.waits && len(l.calls) > 0
	l.calls = nil
	close(l.over)
	for _, other := range slices.Clone(s.links) {
		if i == 0 && other.waits { // nothing tells any more whether its server is well
			s.endLocked(other, cause)
		}
	}
}
