package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

// A session is one session with the ensemble, with the leases and watches that depend on
// it. Several connections may carry it, one after the other. When the session is over, the
// client library's connection is closed too and never used for another session, so a
// request of one session is never executed in the next.
type session struct {
	d      *Driver
	conn   *zk.Conn
	ctx    context.Context // done when the session is over; the cause says why
	cancel context.CancelCauseFunc

	authenticated chan struct{} // closed once the session has begun and its user, if any, was sent
	calls         sync.WaitGroup

	mu            sync.Mutex
	id            int64         // 0 until the session has begun
	timeout       time.Duration // as negotiated
	netConn       *monitoredConn
	up            chan struct{}  // closed while there is a connection
	connSeq       int            // number of connections so far; identifies the current one
	confirmedFrom driver.Instant // leaseTTL counts from here; see leaderContact
	contact       leaderContact
	silentFrom    time.Time           // see silentSince; zero if nothing is unanswered
	connErr       error               // of the last try to connect; nil while connected
	closedUntil   driver.Instant      // the end of the latest LockDelay of a lost lease
	unusable      map[string]struct{} // servers that can't be reached for a permanent reason
	watches       map[watchKey]*watchEvent

	// lastTransaction is the greatest zxid of an answer. The client library keeps it, too, but
	// reads it while another goroutine writes it. So monitoredConn hides it from the library,
	// which then never writes it, and inserts it where the library sends its zero.
	lastTransaction int64

	sweeper sweeper
}

// openSession begins a session. It does not wait for a connection.
func (d *Driver) openSession() *session {
	s := &session{
		d: d, authenticated: make(chan struct{}), up: make(chan struct{}), timeout: d.conf.timeout,
		unusable: map[string]struct{}{}, watches: map[watchKey]*watchEvent{},
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	conn, events, err := zk.Connect(d.conf.servers, d.conf.timeout, zk.WithHostProvider(&hostProvider{done: s.ctx.Done()}),
		zk.WithDialer(s.dial), zk.WithEventCallback(s.onEvent), zk.WithLogger(discardLogger{}), zk.WithLogInfo(false))
	if err != nil { // it fails only for an invalid list of servers
		s.cancel(err)
		return s
	}
	s.conn = conn
	closeWhenDone := func() {
		<-s.ctx.Done()
		s.close(events)
	}
	if !d.life.Go(closeWhenDone) {
		s.cancel(driver.ErrClosed)
		closeWhenDone()
	}
	d.life.Go(s.authenticate)
	return s
}

// A discardLogger keeps the client library from writing to standard error. Calls report
// what goes wrong.
type discardLogger struct{}

func (discardLogger) Printf(string, ...any) {}

// authenticate sends our user and password, if there are any. The library repeats that on each
// later connection.
func (s *session) authenticate() {
	for s.ctx.Err() == nil {
		s.mu.Lock()
		up := s.up
		s.mu.Unlock()
		select {
		case <-up:
		case <-s.ctx.Done():
			return
		}
		var err error
		if who := s.d.conf.digest; who != nil {
			err = classify(s.conn.AddAuth("digest", who))
		}
		switch {
		case err == nil:
			close(s.authenticated)
			return
		case !errors.Is(err, errDisconnected):
			s.terminate(fmt.Errorf("%w: the login failed: %w", errSessionOver, err))
		}
	}
}

// negotiatedTimeout returns the session's timeout.
func (s *session) negotiatedTimeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeout
}

// close stops the client library. It returns within a few seconds, even if the server
// hangs.
func (s *session) close(events <-chan zk.Event) {
	s.mu.Lock()
	lapses := s.id != 0 && (!s.d.life.Over() || s.closedUntil.SubMono(driver.Now()) > 0)
	s.mu.Unlock()
	callsDone := make(chan struct{})
	go func() { s.calls.Wait(); close(callsDone) }()
	// Calls get time to finish, and in the end lose their connection: the library must not
	// be closed during a call.
	for range 2 {
		select {
		case <-callsDone:
		case <-time.After(s.serverTimeout()):
			s.closeConn()
		}
	}
	if lapses {
		s.closeConn() // else the library would close the session, and with it end each LockDelay
	}
	s.conn.Close()
	s.closeConn()
	for range events { // until the library closes the channel
	}
}

// closeConn closes the network connection, if there is one.
func (s *session) closeConn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.netConn != nil {
		_ = s.netConn.Close() // it may be closed already
	}
}

// session returns the current session, or a new one if that is over. It waits for a
// connection if need be.
func (d *Driver) session(ctx context.Context) (*session, error) {
	d.mu.Lock()
	if d.life.Over() {
		d.mu.Unlock()
		return nil, driver.ErrClosed
	}
	if d.current == nil || d.current.ctx.Err() != nil {
		d.current = d.openSession()
	}
	s := d.current
	d.mu.Unlock()
	return s, s.ready(ctx)
}

// ready waits for a connection, for at most the dial timeout.
func (s *session) ready(ctx context.Context) error {
	s.mu.Lock()
	up := s.up
	s.mu.Unlock()
	select {
	case <-s.authenticated:
		select {
		case <-up:
			return nil
		default:
		}
	default:
	}
	timeout := time.After(s.d.conf.dialTimeout)
	for _, event := range []<-chan struct{}{s.authenticated, up} {
		select {
		case <-event:
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case <-ctx.Done():
			return s.disconnected(context.Cause(ctx))
		case <-timeout:
			return s.disconnected(nil)
		}
	}
	return nil
}

// disconnected returns the error of a call whose wait for a connection has ended with why, or, if
// that is nil, after the dial timeout.
func (s *session) disconnected(why error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if why == nil {
		why = fmt.Errorf("not reached within %v", s.d.conf.dialTimeout)
	}
	if s.connErr != nil {
		why = fmt.Errorf("%w: %w", why, s.connErr)
	}
	return fmt.Errorf("%w (%s): %w", errDisconnected, strings.Join(s.d.conf.servers, ","), why)
}

// unanswered returns the error of a request whose wait for an answer has ended with why. The client
// library keeps a request that it gets just after it has lost the connection.
func (s *session) unanswered(why error) error {
	s.mu.Lock()
	up := s.isUp()
	s.mu.Unlock()
	if up {
		return why
	}
	return s.disconnected(why)
}

// recordConnError records why a connection to a server failed. If no server can be reached
// for permanent reasons, it ends a session that has not begun, so that nobody waits for it.
func (s *session) recordConnError(addr string, err error) {
	err = withAddr(addr, err)
	s.mu.Lock()
	s.connErr = err
	if delete(s.unusable, addr); isPermanent(err) {
		s.unusable[addr] = struct{}{}
	}
	hopeless := s.id == 0 && len(s.unusable) == len(s.d.conf.servers)
	s.mu.Unlock()
	if hopeless {
		s.terminate(fmt.Errorf("ZooKeeper can't be reached: %w", err))
	}
}

// onEvent handles an event of the client library. The library calls it in the order in
// which the server sent the events, so it must not block.
func (s *session) onEvent(e zk.Event) {
	switch {
	case e.Type != zk.EventSession:
		s.onNodeEvent(e)
	case e.State == zk.StateHasSession:
		s.onConnected()
	case e.State == zk.StateDisconnected:
		s.onDisconnected()
	case e.State == zk.StateExpired:
		s.terminate(fmt.Errorf("%w: %w", errSessionOver, zk.ErrSessionExpired))
	}
}

// onNegotiated handles a server's answer to the request for a session, which was sent after
// sent. It runs before the client library sees the answer. A session with a shorter timeout than
// the options ask for ends: an ensemble may have got another setting since it began. Holds that
// count on a longer timeout than that are lost.
func (s *session) onNegotiated(id int64, timeout time.Duration, sent driver.Instant) {
	if id == 0 {
		return // the session has expired
	}
	if timeout < s.d.conf.timeout {
		s.terminate(driver.Invalidf("session timeout %v: the ensemble keeps sessions for %v at most, see maxSessionTimeout",
			s.d.conf.timeout, timeout))
		return
	}
	if timeout < s.negotiatedTimeout() {
		s.loseHolds(fmt.Errorf("the ensemble now ends the session after %v", timeout))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timeout = timeout
	s.contact.restart(sent)
	s.silentFrom = time.Time{}
	if s.id == 0 { // later connections have the same id
		s.id = id
	}
}

// onConnected handles a new connection of the session.
func (s *session) onConnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connSeq++
	s.connErr = nil
	s.wakeAll() // in case the library did not report the loss of the last connection
	if !s.isUp() {
		close(s.up)
	}
	for _, l := range s.heldLeases() { // the last connection watched their nodes
		l.watchTimer.Reset(minWatchAge)
	}
}

// onDisconnected handles the loss of the connection, or another failure to get one. Each
// waiter checks the queue again on the next connection. The nodes of leases that are lost are
// deleted after their LockDelay, as soon as a server can be reached.
func (s *session) onDisconnected() {
	if s.markDisconnected() {
		s.loseHolds(errDisconnected)
	}
}

// markDisconnected reports whether the leases are lost.
func (s *session) markDisconnected() (lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isUp() {
		return false
	}
	s.up = make(chan struct{})
	s.recordSilence()
	s.wakeAll()
	return !s.d.conf.keepSuspended
}

// isUp reports whether there is a connection. It is called with the mutex held.
func (s *session) isUp() bool {
	select {
	case <-s.up:
		return true
	default:
		return false
	}
}

// acceptableLoss is how much shorter than leaseTTL a lease may be before a wait for a
// longer one pays. It is called with the mutex held.
func (s *session) acceptableLoss() time.Duration { return leaseTTL(s.timeout) / 6 }

// leaseTTL returns how long a holder may rely on a session with the given timeout. It is
// short enough that a session that sends something now and then is sure to live that long
// after any request: the library sends something every third of the timeout, and the leader
// hears of it within a quarter. Requests that were not sent or not answered shorten it: see
// [leaderContact].
func leaseTTL(timeout time.Duration) time.Duration { return timeout * 5 / 12 }

// terminate ends the session.
func (s *session) terminate(cause error) {
	for _, l := range s.heldLeases() {
		l.delayUntil() // before close asks for it
	}
	s.cancel(cause)
	s.mu.Lock()
	s.wakeAll()
	s.mu.Unlock()
	s.loseHolds(context.Cause(s.ctx))
}

func (s *session) loseHolds(cause error) {
	for _, l := range s.heldLeases() {
		l.loseWithSession(cause)
	}
}

func (s *session) heldLeases() []*lease {
	return slices.DeleteFunc(s.d.allLeases(), func(l *lease) bool { return l.s != s })
}

// loseWithSession ends a lease whose session is over, or in doubt. If its node still exists, it
// keeps others out for the LockDelay.
func (l *lease) loseWithSession(cause error) {
	l.lose(fmt.Errorf("%w: %w", driver.ErrLost, cause), l.delayUntil())
}

// delayUntil returns when the LockDelay of a lease ends that is lost now. Until then, the session
// is not closed.
func (l *lease) delayUntil() driver.Instant {
	end := driver.Now().Add(l.req.LockDelay)
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.s.closedUntil.Before(end) {
		l.s.closedUntil = end
	}
	return end
}

// A call is a request to a server, sent in a goroutine of its own: the client library does
// not support contexts.
type call[T any] struct {
	s     *session
	start driver.Instant // just before the request was sent
	done  chan struct{}  // closed when the answer has come, or never will
	val   T
	err   error
}

// startCall sends a request.
func startCall[T any](s *session, send func(*zk.Conn) (T, error)) *call[T] {
	c := &call[T]{s: s, start: driver.Now(), done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil { // close waits for the other calls
		c.err = context.Cause(s.ctx)
		close(c.done)
		return c
	}
	s.calls.Go(func() {
		defer close(c.done)
		c.val, c.err = send(s.conn)
		c.err = classify(c.err)
		if errors.Is(c.err, errSessionOver) {
			s.terminate(c.err)
		}
	})
	return c
}

// isDone reports whether the answer has come, or never will.
func (c *call[T]) isDone() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// wait returns the answer. If ctx ends first, or there is no connection after the dial timeout, the
// request continues in the background. Close gives requests a few seconds to be answered.
func (c *call[T]) wait(ctx context.Context) (val T, err error) {
	tick := time.NewTicker(c.s.d.conf.dialTimeout)
	defer tick.Stop()
	for err == nil && !c.isDone() {
		select {
		case <-c.done:
		case <-tick.C:
			err = c.s.unanswered(nil)
		case <-ctx.Done():
			err = c.s.unanswered(context.Cause(ctx))
		case <-c.s.ctx.Done():
			if err = context.Cause(c.s.ctx); errors.Is(err, driver.ErrClosed) {
				select {
				case <-c.done:
				case <-ctx.Done():
				}
			}
		}
	}
	if c.isDone() { // perhaps at the same time
		return c.val, c.err
	}
	return val, err
}

// isRejected reports whether the server is known to have rejected the request.
func (c *call[T]) isRejected() bool {
	return c.isDone() && c.err != nil && isAnswer(c.err)
}

// do waits for a connection, sends a request, and waits for its answer.
func do[T any](ctx context.Context, s *session,
	send func(*zk.Conn) (T, error)) (val T, start driver.Instant, err error) {
	if err := s.ready(ctx); err != nil {
		return val, start, err
	}
	c := startCall(s, send)
	val, err = c.wait(ctx)
	return val, c.start, err
}

// inParallel calls f for all items, at most 16 at a time. The function that it returns waits for
// the calls, and returns one of their errors.
func inParallel[T any](items []T, f func(int, T) error) (wait func() error) {
	var running sync.WaitGroup
	errs, sem := make([]error, len(items)), make(chan struct{}, 16)
	for i, item := range items {
		sem <- struct{}{}
		running.Go(func() {
			defer func() { <-sem }()
			errs[i] = f(i, item)
		})
	}
	return func() error {
		running.Wait()
		return cmp.Or(errs...)
	}
}

// confirm asks the leader whether the session lives. The session is certain to live for leaseTTL
// from start on. If start is much earlier than the request, because we sent nothing for a long
// time, confirm asks again when that helps, at most a quarter of the timeout later.
func (s *session) confirm(ctx context.Context) (start driver.Instant, err error) {
	for {
		var retryIn time.Duration
		if start, retryIn, err = s.confirmOnce(ctx); err != nil || retryIn == 0 {
			return start, err
		}
		select {
		case <-time.After(retryIn):
		case <-ctx.Done():
			return start, context.Cause(ctx)
		}
	}
}

// confirmOnce is one round of confirm. retryIn is the time after which another round may
// give a later start; it is 0 if start is late enough.
func (s *session) confirmOnce(ctx context.Context) (start driver.Instant, retryIn time.Duration, err error) {
	_, sent, err := do(ctx, s, func(conn *zk.Conn) (string, error) { return conn.Sync("/") })
	if err != nil {
		return sent, 0, err
	}
	start = s.recordConfirmation(sent)
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent.Sub(start) <= s.acceptableLoss() {
		return start, 0, nil
	}
	return start, s.contact.retryIn(driver.Now(), s.timeout), nil
}

// catchUp makes our server show everything that was decided before the call, on any server.
//
// A sync would not do: a leader answers those of its own clients at once, although a
// follower may have applied more. catchUp sends a write, which the ensemble orders after
// the earlier ones. The write deletes a node that never exists, so it changes nothing.
func (s *session) catchUp(ctx context.Context) error {
	_, sent, err := do(ctx, s, deleteNode(child(s.d.conf.root, absentNode)))
	// A refusal is ordered like a success.
	if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNoAuth) {
		return err
	}
	s.recordConfirmation(sent)
	return nil
}

// recordConfirmation records that the leader has answered a request that was sent at sent.
// It returns the latest instant from which the session is certain to live for leaseTTL.
func (s *session) recordConfirmation(sent driver.Instant) driver.Instant {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silentFrom = time.Time{}
	start := s.contact.leaseStart(sent, s.timeout)
	s.contact.add(exchange{sent, driver.Now()}, s.timeout)
	if s.confirmedFrom.Before(start) {
		s.confirmedFrom = start
	}
	return start
}

// recordAnswer records that a server has received what was sent at sent.
func (s *session) recordAnswer(sent driver.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silentFrom = time.Time{}
	s.contact.add(exchange{sent, driver.Now()}, s.timeout)
}

// recordSilence records that a ping is about to be sent, or that the connection was lost. It is
// called with the mutex held.
func (s *session) recordSilence() {
	if s.silentFrom.IsZero() {
		s.silentFrom = time.Now()
	}
}

// recordPing records that a ping is about to be sent.
func (s *session) recordPing() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recordSilence()
}

// silentSince returns since when the servers have been silent: when the first ping was sent that
// has no answer yet, or the connection was lost. If nothing is unanswered, it is the present time.
// The time in which this process or its machine was stopped does not count, because nothing was
// sent in it.
func (s *session) silentSince() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silentFrom.IsZero() {
		return time.Now()
	}
	return s.silentFrom
}

// listChildren lists a folder. A folder that does not exist is empty.
func listChildren(folder string) func(*zk.Conn) (snapshot, error) {
	return func(conn *zk.Conn) (snapshot, error) {
		snap, err := watchKey{path: folder, children: true}.read(conn, false)
		if errors.Is(err, zk.ErrNoNode) {
			return snapshot{}, nil
		}
		return snap, err
	}
}

// readNode reads a node without watching it.
func readNode(path string) func(*zk.Conn) (snapshot, error) {
	return func(conn *zk.Conn) (snapshot, error) { return watchKey{path: path}.read(conn, false) }
}

// setNode changes the data of a node, whatever its version.
func setNode(path string, data []byte) func(*zk.Conn) (*zk.Stat, error) {
	return func(conn *zk.Conn) (*zk.Stat, error) { return conn.Set(path, data, -1) }
}

// deleteNode deletes a node, whatever its version.
func deleteNode(path string) func(*zk.Conn) (struct{}, error) {
	return func(conn *zk.Conn) (struct{}, error) { return struct{}{}, conn.Delete(path, -1) }
}
