package zklock

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
)

// A hosts gives the client library one server after the other, by the names that they were given: it would look them up once
// and for all, and TLS could not compare them with certificates.
type hosts struct {
	all  []string
	done <-chan struct{} // the session is over
	next int
	left int // servers to try before a pause
}

// pause is what lies between two rounds of all servers.
const pause = 100 * time.Millisecond

// Init implements zk.HostProvider.
func (h *hosts) Init(servers []string) error {
	h.all = slices.Clone(servers)
	rand.Shuffle(len(h.all), func(i, j int) { h.all[i], h.all[j] = h.all[j], h.all[i] })
	h.left = len(h.all)
	return nil
}

// Len implements zk.HostProvider.
func (h *hosts) Len() int { return len(h.all) }

// Next implements zk.HostProvider. Its second result makes the library look whether it was closed, after which it may sleep
// for a second: so it is told to when it was, and the pauses are made here.
func (h *hosts) Next() (server string, closed bool) {
	if h.left == 0 {
		select {
		case <-time.After(pause):
		case <-h.done:
		}
		h.left = len(h.all)
	}
	h.left--
	h.next = (h.next + 1) % len(h.all)
	select {
	case <-h.done:
		return h.all[h.next], true
	default:
		return h.all[h.next], false
	}
}

// Connected implements zk.HostProvider.
func (h *hosts) Connected() { h.left = len(h.all) }

// dial connects to a server, for the client library.
func (s *session) dial(network, addr string, _ time.Duration) (net.Conn, error) {
	conn, err := s.connect(network, addr)
	if err != nil {
		s.trouble(addr, err)
		return nil, err
	}
	l := &link{Conn: conn, in: bufio.NewReader(conn), s: s, addr: addr, began: driver.Now(), late: time.Now().Add(s.patience())}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil { // a session that is over is not followed by another one on the same connection
		_ = conn.Close()
		return nil, context.Cause(s.life)
	}
	s.link = l
	return l, nil
}

// at says of which server an error tells, if it does not say so itself.
func at(addr string, err error) error {
	if strings.Contains(err.Error(), addr) {
		return err
	}
	return fmt.Errorf("%s: %w", addr, err)
}

func (s *session) connect(network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.life, s.patience())
	defer cancel()
	conf := s.d.conf.tls
	if conf == nil {
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
	d := tls.Dialer{Config: conf}
	conn, err := d.DialContext(ctx, network, addr)
	if errors.Is(err, io.EOF) { // in the handshake
		err = silence(err)
	}
	return conn, err
}

// patience is how long one server may keep us from trying the next, while the session lives on.
func (s *session) patience() time.Duration { return min(s.d.conf.dial, s.d.conf.timeout/4) }

// A link is a connection to a server. It watches over its beginning: the client library would wait for a server that hangs
// for several times as long as a session lasts, and does not tell what it has negotiated. And it notes which of the library's
// pings are answered, for [hearing].
type link struct {
	net.Conn
	in    *bufio.Reader // the client library reads in small pieces
	s     *session
	addr  string
	began driver.Instant // before anything was said

	mu    sync.Mutex
	late  time.Time        // when the server must have begun a session; zero once it has
	head  []byte           // of the server's packet that is being read
	rest  int              // bytes of it behind its head
	pings []driver.Instant // just before they were sent; those without an answer
}

// What is read of the server's packets. All begin with the length of what follows. In the first one there is the version of the
// protocol, the timeout in milliseconds and the session's id, both zero if the session has expired; in the others, the number of
// the request that they answer.
const (
	answerHead = 4 + 4 + 4 + 8
	packetHead = 4 + 4
)

// SetReadDeadline implements net.Conn.
func (l *link) SetReadDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.late.IsZero() && (t.IsZero() || t.After(l.late)) {
		t = l.late
	}
	return l.Conn.SetReadDeadline(t)
}

// Read implements net.Conn.
func (l *link) Read(b []byte) (int, error) {
	n, err := l.in.Read(b)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.follow(b[:n])
	if err != nil && !l.late.IsZero() {
		l.s.trouble(l.addr, silence(err))
	}
	return n, err
}

// follow reads along what the server says.
func (l *link) follow(b []byte) {
	for len(b) > 0 {
		if n := min(l.rest, len(b)); n > 0 {
			l.rest, b = l.rest-n, b[n:]
			continue
		}
		want := packetHead
		if !l.late.IsZero() {
			want = answerHead
		}
		n := min(want-len(l.head), len(b))
		l.head, b = append(l.head, b[:n]...), b[n:]
		if len(l.head) == want {
			l.rest = 4 + int(binary.BigEndian.Uint32(l.head)) - want
			l.heard()
			l.head = l.head[:0]
		}
	}
}

// heard is called with the head of a packet.
func (l *link) heard() {
	switch {
	case !l.late.IsZero():
		l.late = time.Time{}
		_ = l.Conn.SetReadDeadline(time.Time{}) // its own are to come
		timeout := time.Duration(binary.BigEndian.Uint32(l.head[8:])) * time.Millisecond
		l.s.agreed(int64(binary.BigEndian.Uint64(l.head[12:])), timeout, l.began)
	case binary.BigEndian.Uint32(l.head[4:]) == pingXid && len(l.pings) > 0:
		l.s.answered(l.pings[0]) // they are answered in order
		l.pings = l.pings[1:]
	}
}

// Requests of ZooKeeper's: the number of the creation of a node, in which the path stands behind it and its own length, and all of
// a ping. The numbers stand behind the length of the packet and the request's own.
const (
	opCreate, pathAt = 1, 4 + 4 + 4 + 4
	opPing, pingSize = 11, 4 + 4 + 4
	pingXid          = 1<<32 - 2
)

// Write implements net.Conn. The client library writes one request at a time.
func (l *link) Write(b []byte) (int, error) {
	if len(b) == pingSize && binary.BigEndian.Uint32(b[8:]) == opPing {
		l.mu.Lock()
		l.pings = append(l.pings, driver.Now())
		l.mu.Unlock()
	}
	n, err := l.Conn.Write(b)
	if err == nil && len(b) > pathAt && binary.BigEndian.Uint32(b[8:]) == opCreate {
		size := int(binary.BigEndian.Uint32(b[pathAt-4:]))
		l.s.created(string(b[pathAt:][:min(size, len(b)-pathAt)]))
	}
	return n, err
}

// expect returns what is closed when the creation of a node was sent: what is asked from then on is answered in view of it.
func (s *session) expect(path string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := make(chan struct{})
	s.creating[path] = sent
	return sent
}

// created notes that the creation of a node was sent, or will not be.
func (s *session) created(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent := s.creating[path]; sent != nil {
		delete(s.creating, path)
		close(sent)
	}
}

// silence says what it may mean that a server does not begin a session.
func silence(err error) error {
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("it accepts connections and answers nobody: %w", err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("it hangs up at once: the ensemble has no quorum, or its port is for TLS and we don't speak it, or the other "+
			"way round: %w", err)
	}
	return err
}
