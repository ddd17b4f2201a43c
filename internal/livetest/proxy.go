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

// quiet is how long a server must have sent nothing for its answer to be over.
const quiet = 20 * time.Millisecond

// A Proxy passes TCP connections on to a server, until it is told to do worse. What it does wrong it does to the connections
// that there are and to those that come; but for Cut, Heal puts an end to it. Methods may be called from any goroutine.
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
	losses   []*loss // those that still look for requests
	awaited  []*sent // those that were not seen yet
}

// A mode is what happens to bytes.
type mode int

const (
	passing mode = iota
	stalled      // they wait
	severed      // they are lost
)

// NewProxy starts a proxy for the server at addr. It ends with t, and resets its connections then.
func NewProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("start a proxy for %s: %v", addr, err)
	}
	p := &Proxy{t: t, server: addr, listener: listener, links: map[*link]struct{}{}, changed: make(chan struct{})}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr is where clients connect to, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Redirect makes the server at addr the one that connections to come go to. Those that there are stay.
func (p *Proxy) Redirect(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = addr
}

// Cut resets all connections. New ones are welcome.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.end(true)
	}
}

// Sever loses, from now on, whatever either side sends, and tells nobody: connections stay open, for the server even those
// that the client closes, and new ones are accepted that don't reach the server. When healed, all these are reset, because
// what was lost is missing in them.
func (p *Proxy) Sever() (heal func()) {
	p.set(severed)
	return func() { p.set(passing) }
}

// Stall holds back, from now on, whatever either side sends. When healed, it is delivered: late, and even if the sender has
// gone away meanwhile.
func (p *Proxy) Stall() (heal func()) {
	p.set(stalled)
	return func() { p.set(passing) }
}

// Heal ends whatever was begun. Connections that an answer was lost on are reset if they are still there.
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

// set begins a mode, or ends it with passing.
func (p *Proxy) set(m mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	close(p.changed)
	p.changed = make(chan struct{})
	for l := range p.links {
		if m == severed {
			l.severed = true
		} else if m == passing && l.severed {
			l.end(true)
		}
	}
}

// Delay delivers what is sent from now on so much later than it was sent.
func (p *Proxy) Delay(toServer, toClient time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.toServer, p.toClient = toServer, toClient
}

// Sent returns a channel that is closed when a client next sends something that contains a text,
// whether or when it is delivered.
func (p *Proxy) Sent(text string) <-chan struct{} {
	s := &sent{text: []byte(text), seen: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaited = append(p.awaited, s)
	return s.seen
}

// A sent is a call of Sent.
type sent struct {
	text []byte
	seen chan struct{}
}

// notice tells those who await what a client has sent. It is called with p.mu held.
func (p *Proxy) notice(bytesSent []byte) {
	p.awaited = slices.DeleteFunc(p.awaited, func(s *sent) bool {
		seen := bytes.Contains(bytesSent, s.text)
		if seen {
			close(s.seen)
		}
		return seen
	})
}

// An Ending is what becomes of a connection that an answer was lost on.
type Ending int

const (
	// ThenClose closes the connection.
	ThenClose Ending = iota

	// ThenHang leaves the connection open, and passes nothing on any more but its end.
	ThenHang
)

// LoseAnswers loses the answers to the next n requests that contain all the given texts: the server has got the request and
// has answered it, and the client never learns how. The returned channel is closed when all n are lost.
//
// A request, here, is what the client sends between two answers, and the answer is all that the server sends until it is
// quiet. With a client that does not wait for one answer before it sends the next request, several are lost together.
func (p *Proxy) LoseAnswers(n int, then Ending, containing ...string) (lost <-chan struct{}) {
	l := &loss{left: n, open: n, then: then, containing: containing, all: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losses = append(p.losses, l)
	return l.all
}

// A loss is a call of LoseAnswers. Its fields are guarded by Proxy.mu.
type loss struct {
	left       int // requests still to be found
	open       int // answers still to be lost
	then       Ending
	containing []string
	all        chan struct{} // closed when open is 0
}

// matches reports whether it is the answer to this request that is to be lost.
func (l *loss) matches(request []byte) bool {
	for _, text := range l.containing {
		if !bytes.Contains(request, []byte(text)) {
			return false
		}
	}
	return l.left > 0
}

func (p *Proxy) close() {
	_ = p.listener.Close() // it ends accept, whatever it says
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
		p.welcome(conn.(*net.TCPConn))
	}
}

func (p *Proxy) welcome(client *net.TCPConn) {
	l := &link{p: p, client: client}
	l.life, l.die = context.WithCancel(context.Background())
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

// A link is one client's connection and ours to the server.
type link struct {
	p      *Proxy
	client *net.TCPConn
	life   context.Context // ended by end
	die    context.CancelFunc

	// Guarded by Proxy.mu:
	server  *net.TCPConn // nil until connected
	severed bool         // it lives on without passing anything, until healed
	mute    bool         // the same, but passes its end
	request []byte       // what the client has sent since the last answer
	asked   bool         // the last who sent something was the client
	loss    *loss        // the next answer is lost to it
	closed  int          // sides that have closed
}

// end closes or resets both connections. Proxy.mu is held.
func (l *link) end(reset bool) {
	if l.life.Err() != nil {
		return
	}
	l.die()
	delete(l.p.links, l)
	for _, conn := range []*net.TCPConn{l.client, l.server} {
		if conn == nil {
			continue
		}
		if reset {
			_ = conn.SetLinger(0) // it fails if the other end has done that already
		}
		_ = conn.Close() // the same
	}
	if l.loss != nil { // gone before the answer: another one is to be lost
		l.loss.left++
	}
}

// reset ends a link that is not well.
func (l *link) reset() {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.end(true)
}

// wait returns when nothing stalls; it reports whether the link still lives.
func (l *link) wait() bool {
	for l.life.Err() == nil {
		l.p.mu.Lock()
		held, changed := l.p.mode == stalled, l.p.changed
		l.p.mu.Unlock()
		if !held {
			return true
		}
		select {
		case <-changed:
		case <-l.life.Done():
		}
	}
	return false
}

// serve connects to the server and passes on.
func (l *link) serve() {
	if !l.wait() {
		return
	}
	l.p.mu.Lock()
	unreachable, server := l.severed, l.p.server
	l.p.mu.Unlock()
	if unreachable {
		_, _ = io.Copy(io.Discard, l.client) // until the client has enough or we are healed
		l.reset()
		return
	}
	conn, err := new(net.Dialer).DialContext(l.life, "tcp", server)
	if err != nil {
		l.reset() // the nearest to what the client would have got from the server
		return
	}
	l.p.mu.Lock()
	l.server = conn.(*net.TCPConn)
	if l.life.Err() != nil {
		_ = conn.Close() // nothing was sent
	} else {
		l.p.running.Go(func() { l.pass(l.client, l.server, l.fromClient) })
		l.p.running.Go(func() { l.pass(l.server, l.client, l.fromServer) })
	}
	l.p.mu.Unlock()
}

// A chunk is what was read at once, with the error that came after it.
type chunk struct {
	bytes []byte
	err   error
	due   time.Time // when it is delivered
}

// A verdict says what to do with a chunk.
type verdict int

const (
	deliver verdict = iota
	swallow
	linger // swallow, and when it has become quiet, call settle
)

// pass copies one direction until its end. judge decides about each chunk, at the time of its delivery.
func (l *link) pass(from, to *net.TCPConn, judge func([]byte) verdict) {
	chunks := make(chan chunk, 64)
	l.p.running.Go(func() { l.read(from, chunks) })
	settled := time.NewTimer(0)
	settled.Stop()
	defer settled.Stop()
	for {
		select {
		case <-l.life.Done():
			return
		case <-settled.C:
			l.settle()
		case c := <-chunks:
			if !l.delay(c.due) || !l.wait() {
				return
			}
			if len(c.bytes) > 0 {
				switch judge(c.bytes) {
				case deliver:
					if _, err := to.Write(c.bytes); err != nil {
						l.reset()
						return
					}
				case linger:
					settled.Reset(quiet)
				case swallow:
				}
			}
			if c.err != nil {
				if settled.Stop() {
					l.settle()
				}
				l.finish(to, c.err)
				return
			}
		}
	}
}

// read sends what comes from a connection to chunks, and an error last.
func (l *link) read(from *net.TCPConn, chunks chan<- chunk) {
	for {
		buf := make([]byte, 32<<10)
		n, err := from.Read(buf)
		l.p.mu.Lock()
		due := time.Now().Add(l.p.toClient)
		if from == l.client {
			due = time.Now().Add(l.p.toServer)
			l.p.notice(buf[:n])
		}
		l.p.mu.Unlock()
		select {
		case chunks <- chunk{buf[:n], err, due}:
		case <-l.life.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// delay waits until due; it reports whether the link still lives.
func (l *link) delay(due time.Time) bool {
	if left := time.Until(due); left > 0 {
		timer := time.NewTimer(left)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.life.Done():
		}
	}
	return l.life.Err() == nil
}

// fromClient judges bytes for the server.
func (l *link) fromClient(sent []byte) verdict {
	const most = 1 << 20 // of a request that are searched
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.severed || l.mute {
		return swallow
	}
	if !l.asked || len(l.request) > most {
		l.request = l.request[:0]
	}
	l.asked = true
	l.request = append(l.request, sent...)
	for _, loss := range l.p.losses {
		if l.loss == nil && loss.matches(l.request) {
			loss.left--
			l.loss = loss
		}
	}
	return deliver
}

// fromServer judges bytes for the client.
func (l *link) fromServer([]byte) verdict {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.asked = false
	switch {
	case l.severed || l.mute:
		return swallow
	case l.loss != nil:
		return linger
	}
	return deliver
}

// settle is called when an answer is lost.
func (l *link) settle() {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	loss := l.loss
	if loss == nil || l.life.Err() != nil {
		return
	}
	l.loss = nil
	if loss.open--; loss.open == 0 {
		close(loss.all)
	}
	l.mute = true
	if loss.then == ThenClose {
		l.end(false)
	}
}

// finish passes on that one side has closed its connection, or that it was reset.
func (l *link) finish(to *net.TCPConn, err error) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.severed {
		return // the other side does not hear of it
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
