package zklock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

// A session is one session with the ensemble, and what hangs on it. Several connections may carry it, one after the other; but
// when it is over, the client library's connection is ended with it, and is not used for another one: what was asked in one
// session is never done in the next.
type session struct {
	d    *Driver
	conn *zk.Conn
	life context.Context // done when the session is over; the cause says why
	end  context.CancelCauseFunc

	begun chan struct{} // closed when we have said who we are
	calls sync.WaitGroup

	mu      sync.Mutex
	closing bool
	id      int64         // 0 until it has begun
	timeout time.Duration // as negotiated
	link    *link
	up      chan struct{}  // closed while there is a connection
	links   int            // connections so far
	acked   driver.Instant // from which on the session lasts for its tenure, see hearing
	hearing hearing
	worry   error               // of the last connection that could not be had; nil while there is one
	refused map[string]struct{} // servers that can't be reached for a reason that does not pass
	holds   map[string]*hold    // by path
	guarded bool                // the guard runs
	looked  driver.Instant      // when the guard last looked at the holds
	young   chan struct{}       // of one: there is another hold
	watches map[watch]*notice

	creating map[string]chan struct{} // nodes whose creation has not been sent, by path
	last     map[string]place         // of our latest node in a folder, if it was alone and is deleted

	sweeper sweeper
}

// open begins a session. It does not wait for it.
func (d *Driver) open() *session {
	s := &session{
		d: d, begun: make(chan struct{}), up: make(chan struct{}), timeout: d.conf.timeout,
		refused: map[string]struct{}{}, holds: map[string]*hold{}, young: make(chan struct{}, 1), watches: map[watch]*notice{},
		creating: map[string]chan struct{}{}, last: map[string]place{},
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	conn, events, err := zk.Connect(d.conf.servers, d.conf.timeout, zk.WithHostProvider(&hosts{done: s.life.Done()}),
		zk.WithDialer(s.dial), zk.WithEventCallback(s.event), zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil { // it looks at the list of servers only
		s.end(err)
		return s
	}
	s.conn = conn
	tend := func() {
		<-s.life.Done()
		s.close(events)
	}
	if !d.life.Go(tend) {
		s.end(driver.ErrClosed)
		tend()
	}
	d.life.Go(s.begin)
	return s
}

// silent keeps the client library from writing to the standard error. What goes wrong is told by calls.
type silent struct{}

func (silent) Printf(string, ...any) {}

// begin says who we are. The library says it again on each connection to come.
func (s *session) begin() {
	for s.life.Err() == nil {
		s.mu.Lock()
		up := s.up
		s.mu.Unlock()
		select {
		case <-up:
		case <-s.life.Done():
			return
		}
		if most := s.granted(); most < s.d.conf.timeout {
			s.over(fmt.Errorf("%w session timeout %v: the ensemble keeps sessions for %v at most, see maxSessionTimeout",
				driver.ErrInvalid, s.d.conf.timeout, most))
			return
		}
		var err error
		if who := s.d.conf.digest; who != nil {
			err = told(s.conn.AddAuth("digest", who))
		}
		switch {
		case err == nil:
			close(s.begun)
			return
		case !errors.Is(err, errApart):
			s.over(fmt.Errorf("%w: we can't say who we are: %w", errOver, err))
		}
	}
}

// granted is the session's timeout.
func (s *session) granted() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeout
}

// close ends what the client library does. It returns within a few seconds, also when the server hangs.
func (s *session) close(events <-chan zk.Event) {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	quiet := make(chan struct{})
	go func() { s.calls.Wait(); close(quiet) }()
	for range 2 { // calls have time to end, at last by the end of the connection: the library is not closed in the midst of them
		timer := time.NewTimer(s.patience())
		select {
		case <-quiet:
		case <-timer.C:
			s.hangUp()
		}
		timer.Stop()
	}
	s.conn.Close()
	s.hangUp()
	for range events { // until it has come to its end
	}
}

// hangUp cuts the connection, if there is one.
func (s *session) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != nil {
		_ = s.link.Close() // it may be closed already
	}
}

// session returns the present session, with a connection, which it waits for if need be.
func (d *Driver) session(ctx context.Context) (*session, error) {
	d.mu.Lock()
	if d.life.Over() {
		d.mu.Unlock()
		return nil, driver.ErrClosed
	}
	if d.present == nil || d.present.life.Err() != nil {
		d.present = d.open()
	}
	s := d.present
	d.mu.Unlock()
	return s, s.ready(ctx)
}

// ready waits for a connection, for as long as the dial timeout.
func (s *session) ready(ctx context.Context) error {
	s.mu.Lock()
	up := s.up
	s.mu.Unlock()
	select {
	case <-s.begun:
		select {
		case <-up:
			return nil
		default:
		}
	default:
	}
	timer := time.NewTimer(s.d.conf.dial)
	defer timer.Stop()
	for _, event := range []<-chan struct{}{s.begun, up} {
		select {
		case <-event:
		case <-s.life.Done():
			return context.Cause(s.life)
		case <-ctx.Done():
			return s.doubt(ctx)
		case <-timer.C:
			return s.unreachable()
		}
	}
	return nil
}

func (s *session) unreachable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := fmt.Errorf("%w (%s) within %v", errApart, strings.Join(s.d.conf.servers, ","), s.d.conf.dial)
	if s.worry != nil {
		err = fmt.Errorf("%w: %w", err, s.worry)
	}
	return err
}

// doubt is the error of a call whose context ended while it waited for a connection.
func (s *session) doubt(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.worry == nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w: %w", errApart, s.worry, context.Cause(ctx))
}

// trouble notes why there is no connection to a server. If no server can be reached for reasons
// that do not pass, a session that has not begun is over, and nobody waits for it.
func (s *session) trouble(addr string, err error) {
	err = at(addr, err)
	s.mu.Lock()
	s.worry = err
	if delete(s.refused, addr); isPermanent(err) {
		s.refused[addr] = struct{}{}
	}
	hopeless := s.id == 0 && len(s.refused) == len(s.d.conf.servers)
	s.mu.Unlock()
	if hopeless {
		s.over(fmt.Errorf("no way to ZooKeeper: %w", err))
	}
}

// event is called by the client library, in the order in which things came from the server, and must not wait for anything.
func (s *session) event(e zk.Event) {
	switch {
	case e.Type != zk.EventSession:
		s.changed(e)
	case e.State == zk.StateHasSession:
		s.connected()
	case e.State == zk.StateDisconnected:
		s.apart()
	case e.State == zk.StateExpired:
		s.over(fmt.Errorf("%w: %w", errOver, zk.ErrSessionExpired))
	}
}

// agreed is called with what a server has answered to our wish for a session, of after said, before the client library knows of
// it.
func (s *session) agreed(id int64, timeout time.Duration, said driver.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == 0 {
		return // it has expired
	}
	s.timeout = timeout
	s.hearing.begin(said)
	if s.id == 0 { // on later connections it is the same
		s.id = id
	}
}

// connected is called when the session has a connection.
func (s *session) connected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links++
	s.worry = nil
	if !s.isUp() { // or it was not told that the last one went
		close(s.up)
	}
}

// apart is called when the session has no connection any more, or again did not get one. Whoever waits looks again on the next.
func (s *session) apart() {
	if lost := s.disconnect(); lost {
		s.loseAll()
	}
}

// disconnect reports whether the holds are lost.
func (s *session) disconnect() (lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isUp() {
		return false
	}
	s.up = make(chan struct{})
	s.wakeAll()
	return !s.d.conf.suspend
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

// tenure is for how long a holder may rely on the session; it is called with the mutex held.
func (s *session) tenure() time.Duration { return tenure(s.timeout) }

// hardly is by how much a lease may be shorter without it being worth a wait. It is called with the mutex held.
func (s *session) hardly() time.Duration { return s.tenure() / 6 }

// tenure is so much less than the timeout that a session which says something every now and then is sure to live as long, from
// whenever it asks: the library says something every third of the timeout, and within a quarter the leader has been told. What
// was not said, or not answered, shortens it: see [hearing].
func tenure(timeout time.Duration) time.Duration { return timeout * 5 / 12 }

// loseAll tells all holders that their locks are lost. Their nodes go when their LockDelay is over,
// as soon as a server can be asked to delete them.
func (s *session) loseAll() { s.lose(fmt.Errorf("%w: %w", driver.ErrLost, errApart)) }

// over ends the session.
func (s *session) over(why error) {
	s.end(why)
	s.mu.Lock()
	s.wakeAll()
	s.mu.Unlock()
	s.lose(fmt.Errorf("%w: %w", driver.ErrLost, context.Cause(s.life)))
}

func (s *session) lose(why error) {
	s.mu.Lock()
	holds := slices.Collect(maps.Values(s.holds))
	s.mu.Unlock()
	for _, h := range holds {
		h.lose(why, driver.Now().Add(h.req.LockDelay))
	}
}

// A call is a request to a server, in a goroutine: the client library knows no contexts.
type call[T any] struct {
	s     *session
	start driver.Instant // just before it was sent
	done  chan struct{}  // closed when the answer is there, or there will be none
	val   T
	err   error
}

// begin sends a request.
func begin[T any](s *session, send func(*zk.Conn) (T, error)) *call[T] {
	c := &call[T]{s: s, start: driver.Now(), done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.life.Err() != nil {
		c.err = context.Cause(s.life)
		close(c.done)
		return c
	}
	s.calls.Go(func() {
		defer close(c.done)
		c.val, c.err = send(s.conn)
		c.err = told(c.err)
		if errors.Is(c.err, errOver) {
			s.over(c.err)
		}
	})
	return c
}

// ended reports whether the answer is there.
func (c *call[T]) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// wait returns the answer. When ctx ends first the request goes on, and with it the call.
func (c *call[T]) wait(ctx context.Context) (T, error) {
	select {
	case <-c.done:
		return c.val, c.err
	case <-ctx.Done():
		select {
		case <-c.done: // both
			return c.val, c.err
		default:
		}
		var none T
		return none, context.Cause(ctx)
	case <-c.s.life.Done():
		var none T
		return none, context.Cause(c.s.life)
	}
}

// refused reports whether the server is known to have answered that it does not do it.
func (c *call[T]) refused() bool {
	return c.ended() && c.err != nil && answered(c.err)
}

// do is a call that is waited for, when there is a connection.
func do[T any](ctx context.Context, s *session, send func(*zk.Conn) (T, error)) (val T, start driver.Instant, err error) {
	if err := s.ready(ctx); err != nil {
		return val, start, err
	}
	c := begin(s, send)
	val, err = c.wait(ctx)
	return val, c.start, err
}

// confirm asks the leader: when it answers, the session lived when it was asked. start is from when the session lasts for its tenure. If that
// is long ago, because we were silent for long, it asks once more when that helps: a quarter of the timeout later at most.
func (s *session) confirm(ctx context.Context) (start driver.Instant, err error) {
	for {
		var again time.Duration
		if start, again, err = s.ask(ctx); err != nil || again == 0 {
			return start, err
		}
		timer := time.NewTimer(again)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return start, context.Cause(ctx)
		}
	}
}

// ask is confirm, once. again is after how long asking once more may give a later start; 0 if it is late enough.
func (s *session) ask(ctx context.Context) (start driver.Instant, again time.Duration, err error) {
	_, asked, err := do(ctx, s, sync1)
	if err != nil {
		return asked, 0, err
	}
	start = s.ack(asked)
	s.mu.Lock()
	defer s.mu.Unlock()
	if asked.Sub(start) <= s.hardly() {
		return start, 0, nil
	}
	return start, s.hearing.next(driver.Now(), s.timeout), nil
}

func sync1(conn *zk.Conn) (string, error) { return conn.Sync("/") }

// catchUp has our server show all that was decided before it was called, wherever that was, and start is as that of ask. A sync does not: a
// leader answers those of its own clients at once, though a follower may have applied more than it has. So it is a write, which the ensemble puts
// in order behind the others. It changes nothing, since there is nothing to be deleted.
func (s *session) catchUp(ctx context.Context) (start driver.Instant, err error) {
	_, asked, err := do(ctx, s, remove(child(s.d.conf.root, noLock)))
	if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNoAuth) { // a refusal stands in the same order
		return asked, err
	}
	return s.ack(asked), nil
}

// ack notes that the leader has answered what was asked at asked, and returns from when the session lasts for its tenure, for all
// that is known of that.
func (s *session) ack(asked driver.Instant) driver.Instant {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := driver.Now()
	start := s.hearing.credit(asked, s.timeout)
	s.hearing.add(exchange{asked, now}, s.timeout)
	if s.acked.Before(start) {
		s.acked = start
	}
	return start
}

// answered notes that a server has got what was said to it.
func (s *session) answered(said driver.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hearing.add(exchange{said, driver.Now()}, s.timeout)
}

// children lists a folder. One that does not exist is empty.
func children(folder string) func(*zk.Conn) (sight, error) {
	return func(conn *zk.Conn) (sight, error) {
		seen, err := watch{path: folder, children: true}.get(conn, false)
		if errors.Is(err, zk.ErrNoNode) {
			return sight{}, nil
		}
		return seen, err
	}
}

// read looks at a node, and does not watch it.
func read(path string) func(*zk.Conn) (sight, error) {
	return func(conn *zk.Conn) (sight, error) { return watch{path: path}.get(conn, false) }
}

// remove deletes a node, whatever its version.
func remove(path string) func(*zk.Conn) (struct{}, error) {
	return func(conn *zk.Conn) (struct{}, error) { return struct{}{}, conn.Delete(path, -1) }
}
