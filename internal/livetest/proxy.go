package livetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// quietTime is how long a server must have sent nothing for its answer to be complete.
const quietTime = 20 * time.Millisecond

// A Proxy passes TCP connections on to a server, until it is told to inject faults.
// Faults affect existing connections and, except for Cut, new ones, until Heal. A
// Proxy is safe for concurrent use.
type Proxy struct {
	t        testing.TB
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex
	server   string
	closed   bool
	links    map[*link]struct{}
	mode     mode
	changed  chan struct{} // closed when the mode changes
	toServer time.Duration
	toClient time.Duration
	losses   []*loss     // those that still wait for requests
	awaited  []*sentWait // calls of Sent whose text was not seen yet
}

// A mode says what happens to data.
type mode int

const (
	passing mode = iota
	stalled      // it waits
	severed      // it is lost
)

// NewProxy starts a proxy for the server at addr. It ends with t, and then resets
// its connections.
func NewProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err, "start a proxy for %s", addr)
	p := &Proxy{t: t, server: addr, listener: listener, links: map[*link]struct{}{}, changed: make(chan struct{})}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr returns the address for clients, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Redirect makes new connections go to the server at addr. Existing connections stay.
func (p *Proxy) Redirect(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = addr
}

// Cut resets all connections. New ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.end(true)
	}
}

// Sever loses, from now on, all data from both sides, and tells nobody. Connections stay open,
// on the server's side even those that the client closes. New connections are accepted and
// don't reach the server. heal resets all these connections, because data is missing in them.
func (p *Proxy) Sever() (heal func()) {
	p.set(severed)
	return func() { p.set(passing) }
}

// Stall holds back, from now on, all data from both sides. heal delivers it late, even if the
// sender has closed its connection meanwhile.
func (p *Proxy) Stall() (heal func()) {
	p.set(stalled)
	return func() { p.set(passing) }
}

// StallConnected is Stall for the connections that exist now. New ones work.
func (p *Proxy) StallConnected() (heal func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.stalled = true
	}
	return func() { p.set(passing) }
}

// Heal ends all faults. It resets connections on which an answer was lost, if they still exist.
func (p *Proxy) Heal() {
	p.set(passing)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.toServer, p.toClient, p.losses = 0, 0, nil
	for l := range p.links {
		if l.mute || l.loss != nil {
			l.end(true)
		}
	}
}

// set sets the mode; passing ends a fault.
func (p *Proxy) set(m mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	close(p.changed)
	p.changed = make(chan struct{})
	for l := range p.links {
		l.stalled = l.stalled && m != passing
		if m == severed {
			l.severed = true
		} else if m == passing && l.severed {
			l.end(true)
		}
	}
}

// Delay delays the delivery of all data that is sent from now on.
func (p *Proxy) Delay(toServer, toClient time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.toServer, p.toClient = toServer, toClient
}

// Sent returns a channel that is closed when a client next sends something that contains a text,
// whether or when it is delivered.
func (p *Proxy) Sent(text string) <-chan struct{} {
	s := &sentWait{text: []byte(text), seen: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaited = append(p.awaited, s)
	return s.seen
}

// A sentWait is a call of Sent.
type sentWait struct {
	text []byte
	seen chan struct{}
}

// notifySent ends the calls of Sent whose text a client has sent. p.mu must be locked.
func (p *Proxy) notifySent(bytesSent []byte) {
	p.awaited = slices.DeleteFunc(p.awaited, func(s *sentWait) bool {
		seen := bytes.Contains(bytesSent, s.text)
		if seen {
			close(s.seen)
		}
		return seen
	})
}

// An Ending says what happens to a connection after an answer on it was lost.
type Ending int

const (
	// ThenClose closes the connection.
	ThenClose Ending = iota

	// ThenHang leaves the connection open, and passes nothing on any more except its end.
	ThenHang
)

// LoseAnswers loses the answers to the next n requests that contain all the given texts: the
// server gets the request and answers it, and the client never gets the answer. The returned
// channel is closed when all n answers are lost.
//
// A request is everything that the client sends between two answers, and an answer is
// everything that the server sends until it is quiet for 20 ms. If a client does not wait for
// an answer before it sends the next request, several answers are lost together.
func (p *Proxy) LoseAnswers(n int, then Ending, containing ...string) (lost <-chan struct{}) {
	l := &loss{requestsLeft: n, answersLeft: n, then: then, containing: containing, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losses = append(p.losses, l)
	return l.done
}

// A loss is a call of LoseAnswers. Its fields are guarded by Proxy.mu.
type loss struct {
	requestsLeft int // requests still to be found
	answersLeft  int // answers still to be lost
	then         Ending
	containing   []string
	done         chan struct{} // closed when open is 0
}

// matches reports whether the answer to this request is to be lost.
func (l *loss) matches(request []byte) bool {
	for _, text := range l.containing {
		if !bytes.Contains(request, []byte(text)) {
			return false
		}
	}
	return l.requestsLeft > 0
}

func (p *Proxy) close() {
	_ = p.listener.Close() // it ends accept in any case
	p.mu.Lock()
	p.closed = true
	for l := range p.links {
		l.end(true)
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files
			p.t.Errorf("proxy at %s: %v", p.Addr(), err)
			return
		}
		p.addLink(conn.(*net.TCPConn))
	}
}

func (p *Proxy) addLink(client *net.TCPConn) {
	l := &link{p: p, client: client}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		l.end(true)
		return
	}
	l.severed = p.mode == severed
	p.links[l] = struct{}{}
	p.running.Go(l.serve)
}

// A link is a client's connection and the proxy's connection to the server for it.
type link struct {
	p      *Proxy
	client *net.TCPConn
	ctx    context.Context // cancelled by end
	cancel context.CancelFunc

	// Guarded by Proxy.mu:
	server         *net.TCPConn // nil until connected
	severed        bool         // it stays open and passes nothing, until healed
	stalled        bool         // its data waits, until healed
	mute           bool         // the same, but it passes the end of a connection
	request        []byte       // what the client has sent since the last answer
	clientSentLast bool         // the client was the last to send
	loss           *loss        // the next answer is lost because of it
	closed         int          // the number of sides that have closed
}

// end closes or resets both connections. Proxy.mu must be locked.
func (l *link) end(reset bool) {
	if l.ctx.Err() != nil {
		return
	}
	l.cancel()
	delete(l.p.links, l)
	for _, conn := range []*net.TCPConn{l.client, l.server} {
		if conn == nil {
			continue
		}
		if reset {
			_ = conn.SetLinger(0) // fails if the other end has reset it already
		}
		_ = conn.Close() // the same
	}
	if l.loss != nil { // it ended before the answer: another answer is to be lost
		l.loss.requestsLeft++
	}
}

// reset ends a link and resets its connections.
func (l *link) reset() {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.end(true)
}

// awaitUnstalled waits until neither the proxy nor the link is stalled. It reports whether the link
// is still open.
func (l *link) awaitUnstalled() bool {
	for l.ctx.Err() == nil {
		l.p.mu.Lock()
		held, changed := l.stalled || l.p.mode == stalled, l.p.changed
		l.p.mu.Unlock()
		if !held {
			return true
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
		}
	}
	return false
}

// serve connects to the server and passes data on.
func (l *link) serve() {
	if !l.awaitUnstalled() {
		return
	}
	l.p.mu.Lock()
	unreachable, server := l.severed, l.p.server
	l.p.mu.Unlock()
	if unreachable {
		_, _ = io.Copy(io.Discard, l.client) // until the client closes or the proxy is healed
		l.reset()
		return
	}
	conn, err := new(net.Dialer).DialContext(l.ctx, "tcp", server)
	if err != nil {
		l.reset() // closest to what the client would have got from the server
		return
	}
	l.p.mu.Lock()
	l.server = conn.(*net.TCPConn)
	if l.ctx.Err() != nil {
		_ = conn.Close() // nothing was sent
	} else {
		l.p.running.Go(func() { l.pass(l.client, l.server, l.fromClient) })
		l.p.running.Go(func() { l.pass(l.server, l.client, l.fromServer) })
	}
	l.p.mu.Unlock()
}

// A chunk is the result of one read: data, and the error that followed it.
type chunk struct {
	bytes []byte
	err   error
	due   time.Time // when to deliver it
}

// An action says what to do with a chunk.
type action int

const (
	deliver action = iota
	drop
	dropAnswer // drop, and call completeLoss when the server has become quiet
)

// pass copies one direction until its end. It calls decide for each chunk at the
// time of its delivery.
func (l *link) pass(from, to *net.TCPConn, decide func([]byte) action) {
	chunks := make(chan chunk, 64)
	l.p.running.Go(func() { l.read(from, chunks) })
	settled := time.NewTimer(0)
	settled.Stop()
	defer settled.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-settled.C:
			l.completeLoss()
		case c := <-chunks:
			if !l.delay(c.due) || !l.awaitUnstalled() {
				return
			}
			if len(c.bytes) > 0 {
				switch decide(c.bytes) {
				case deliver:
					if _, err := to.Write(c.bytes); err != nil {
						l.reset()
						return
					}
				case dropAnswer:
					settled.Reset(quietTime)
				case drop:
				}
			}
			if c.err != nil {
				if settled.Stop() {
					l.completeLoss()
				}
				l.passClose(to, c.err)
				return
			}
		}
	}
}

// read sends the data from a connection to chunks, and its error last.
func (l *link) read(from *net.TCPConn, chunks chan<- chunk) {
	for {
		buf := make([]byte, 32<<10)
		n, err := from.Read(buf)
		l.p.mu.Lock()
		due := time.Now().Add(l.p.toClient)
		if from == l.client {
			due = time.Now().Add(l.p.toServer)
			l.p.notifySent(buf[:n])
		}
		l.p.mu.Unlock()
		select {
		case chunks <- chunk{buf[:n], err, due}:
		case <-l.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// delay waits until due. It reports whether the link is still open.
func (l *link) delay(due time.Time) bool {
	const timersAreLate = 2 * time.Millisecond // those of a process that has nothing else to do
	if left := time.Until(due) - timersAreLate; left > 0 {
		timer := time.NewTimer(left)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.ctx.Done():
		}
	}
	if left := time.Until(due); left > 0 && l.ctx.Err() == nil {
		sleep(left)
	}
	return l.ctx.Err() == nil
}

// fromClient decides about data for the server.
func (l *link) fromClient(sent []byte) action {
	const most = 1 << 20 // the part of a request that is searched
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.severed || l.mute {
		return drop
	}
	if !l.clientSentLast || len(l.request) > most {
		l.request = l.request[:0]
	}
	l.clientSentLast = true
	l.request = append(l.request, sent...)
	for _, loss := range l.p.losses {
		if l.loss == nil && loss.matches(l.request) {
			loss.requestsLeft--
			l.loss = loss
		}
	}
	return deliver
}

// fromServer decides about data for the client.
func (l *link) fromServer([]byte) action {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.clientSentLast = false
	switch {
	case l.severed || l.mute:
		return drop
	case l.loss != nil:
		return dropAnswer
	}
	return deliver
}

// completeLoss is called when an answer is completely lost.
func (l *link) completeLoss() {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	loss := l.loss
	if loss == nil || l.ctx.Err() != nil {
		return
	}
	l.loss = nil
	if loss.answersLeft--; loss.answersLeft == 0 {
		close(loss.done)
	}
	l.mute = true
	if loss.then == ThenClose {
		l.end(false)
	}
}

// passClose passes on that one side has closed its connection, or that it was reset.
func (l *link) passClose(to *net.TCPConn, err error) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.severed {
		return // the other side is not told
	}
	if err != io.EOF { //nolint:errorlint // Read returns it as it is
		l.end(true)
		return
	}
	_ = to.CloseWrite() // if that fails, the other side is gone already
	if l.closed++; l.closed == 2 {
		l.end(false)
	}
}

// Detour starts a proxy for each of the servers at addrs, for one client. The client gets the
// servers' own addresses, also from Sentinels and nodes of a Cluster, and asks route for that of
// the proxy when it connects.
func Detour(t testing.TB, addrs ...string) (route func(addr string) string, proxies []*Proxy) {
	t.Helper()
	routes := make(map[string]string)
	for _, addr := range addrs {
		p := NewProxy(t, addr)
		routes[addr], proxies = p.Addr(), append(proxies, p)
	}
	return func(addr string) string { return routes[addr] }, proxies
}

// All injects a fault into several proxies, such as
// All(proxies, (*Proxy).Sever), and returns a function that heals all of them.
func All(proxies []*Proxy, fault func(*Proxy) func()) (heal func()) {
	var heals []func()
	for _, p := range proxies {
		heals = append(heals, fault(p))
	}
	return func() {
		for _, heal := range heals {
			heal()
		}
	}
}
