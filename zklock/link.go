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

// A hostProvider gives the client library the servers in turn, by their names in the options. The
// library's own provider would resolve the names only once, and TLS could not compare the
// addresses with certificates.
type hostProvider struct {
	all  []string
	done <-chan struct{} // closed when the session is over
	next int
	left int // servers to try before a pause
}

// reconnectDelay is the pause between two rounds over all servers.
const reconnectDelay = 100 * time.Millisecond

// Init implements zk.HostProvider.
func (h *hostProvider) Init(servers []string) error {
	h.all = slices.Clone(servers)
	rand.Shuffle(len(h.all), func(i, j int) { h.all[i], h.all[j] = h.all[j], h.all[i] })
	h.left = len(h.all)
	return nil
}

// Len implements zk.HostProvider.
func (h *hostProvider) Len() int { return len(h.all) }

// Next implements zk.HostProvider. If the second result is true, the library checks whether it
// was closed, and may then sleep for a second. So Next returns true only when the session is
// over, and makes the pauses itself.
func (h *hostProvider) Next() (server string, closed bool) {
	if h.left == 0 {
		select {
		case <-time.After(reconnectDelay):
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
func (h *hostProvider) Connected() { h.left = len(h.all) }

// dial connects to a server, for the client library.
func (s *session) dial(network, addr string, _ time.Duration) (net.Conn, error) {
	conn, err := s.connect(network, addr)
	if err != nil {
		s.recordConnError(addr, err)
		return nil, err
	}
	c := &monitoredConn{Conn: conn, reader: bufio.NewReader(conn), s: s, addr: addr, opened: driver.Now(),
		handshakeDeadline: time.Now().Add(s.serverTimeout())}
	s.mu.Lock()
	defer s.mu.Unlock()
	// A session that is over must not be followed by another on the same connection.
	if s.ctx.Err() != nil {
		_ = conn.Close()
		return nil, context.Cause(s.ctx)
	}
	s.netConn = c
	return c, nil
}

// withAddr adds the server's address to an error that does not contain it.
func withAddr(addr string, err error) error {
	if strings.Contains(err.Error(), addr) {
		return err
	}
	return fmt.Errorf("%s: %w", addr, err)
}

func (s *session) connect(network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.serverTimeout())
	defer cancel()
	conf := s.d.conf.tls
	if conf == nil {
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
	d := tls.Dialer{Config: conf}
	conn, err := d.DialContext(ctx, network, addr)
	if errors.Is(err, io.EOF) { // in the handshake
		err = explainNoSession(err)
	}
	return conn, err
}

// serverTimeout is how long one server may keep us from the next while the session lives.
func (s *session) serverTimeout() time.Duration { return min(s.d.conf.dialTimeout, s.d.conf.timeout/4) }

// A monitoredConn is a connection to a server. It limits the time of the handshake: the client
// library would wait for a hung server several times as long as a session lasts. It reads the
// result of the handshake, which the library does not report. It also records which of the
// library's pings are answered, for [leaderContact], and keeps the last transaction in the
// library's place: see [session.lastTransaction].
type monitoredConn struct {
	net.Conn
	reader *bufio.Reader // the client library reads in small pieces
	s      *session
	addr   string
	opened driver.Instant // before anything was sent

	// Of the goroutine that writes.
	handshakeSent bool
	seen          int64 // the last transaction before this connection

	mu                sync.Mutex
	handshakeDeadline time.Time        // for the server to begin a session; zero once it has
	head              []byte           // of the server's packet that is being read
	remaining         int              // bytes of that packet after its head
	pings             []driver.Instant // when each unanswered ping was sent, or just before
}

// The heads of the server's packets, which begin with the length of what follows. The handshake
// has the version of the protocol, the timeout in milliseconds and the session's id; timeout
// and id are zero if the session has expired. Other packets have the number of the request that
// they answer, negative if they answer none, and the server's last transaction.
const (
	handshakeHead = 4 + 4 + 4 + 8
	packetHead    = zxidAt + 8
	zxidAt        = 4 + 4
)

// SetReadDeadline implements net.Conn.
func (c *monitoredConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.handshakeDeadline.IsZero() && (t.IsZero() || t.After(c.handshakeDeadline)) {
		t = c.handshakeDeadline
	}
	return c.Conn.SetReadDeadline(t)
}

// Read implements net.Conn.
func (c *monitoredConn) Read(b []byte) (int, error) {
	n, err := c.reader.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parseStream(b[:n])
	if err != nil && !c.handshakeDeadline.IsZero() {
		c.s.recordConnError(c.addr, explainNoSession(err))
	}
	return n, err
}

// parseStream finds the heads of the packets in what the server sends.
func (c *monitoredConn) parseStream(b []byte) {
	for len(b) > 0 {
		if n := min(c.remaining, len(b)); n > 0 {
			c.remaining, b = c.remaining-n, b[n:]
			continue
		}
		want := packetHead
		if !c.handshakeDeadline.IsZero() {
			want = handshakeHead
		}
		n := min(want-len(c.head), len(b))
		c.head = append(c.head, b[:n]...)
		if c.answersRequest() {
			clear(b[max(0, n-(len(c.head)-zxidAt)):n]) // the part of the zxid that is in b
		}
		b = b[n:]
		if len(c.head) == want {
			c.remaining = 4 + int(binary.BigEndian.Uint32(c.head)) - want
			c.onPacketHead()
			c.head = c.head[:0]
		}
	}
}

// onPacketHead handles the head of a packet.
func (c *monitoredConn) onPacketHead() {
	switch {
	case !c.handshakeDeadline.IsZero():
		c.handshakeDeadline = time.Time{}
		_ = c.Conn.SetReadDeadline(time.Time{}) // the library sets its own from now on
		timeout := time.Duration(binary.BigEndian.Uint32(c.head[8:])) * time.Millisecond
		c.s.onNegotiated(int64(binary.BigEndian.Uint64(c.head[12:])), timeout, c.opened)
	case c.answersRequest():
		c.s.recordTransaction(int64(binary.BigEndian.Uint64(c.head[zxidAt:])))
	case binary.BigEndian.Uint32(c.head[4:]) == pingXid && len(c.pings) > 0:
		c.s.recordAnswer(c.pings[0]) // the server answers in order
		c.pings = c.pings[1:]
	}
}

// answersRequest reports whether the packet that is being read is known to answer a request
// that is not a ping. It is called with the mutex held.
func (c *monitoredConn) answersRequest() bool {
	return c.handshakeDeadline.IsZero() && len(c.head) >= zxidAt && int32(binary.BigEndian.Uint32(c.head[4:])) >= 0
}

// recordTransaction records the last transaction that a server had executed when it answered.
func (s *session) recordTransaction(zxid int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastTransaction = max(s.lastTransaction, zxid)
}

// Requests of ZooKeeper. A request begins with its length, its number and the code of its
// operation; a ping ends there. The request for a session has no number, and the version of the
// protocol where others have that. In it, and in a request to set watches again, the last
// transaction that the client has seen is next.
const (
	opPing, pingSize        = 11, 4 + 4 + 4
	pingXid                 = 1<<32 - 2
	handshakeZxidAt         = 4 + 4
	opSetWatches, watchedAt = 101, 4 + 4 + 4
)

// Write implements net.Conn. The client library writes one request at a time.
func (c *monitoredConn) Write(b []byte) (int, error) {
	if len(b) == pingSize && binary.BigEndian.Uint32(b[8:]) == opPing {
		c.mu.Lock()
		c.pings = append(c.pings, driver.Now())
		c.mu.Unlock()
		c.s.recordPing()
	}
	return c.Conn.Write(c.withLastTransaction(b))
}

// withLastTransaction returns a request with the last transaction that was seen before this
// connection. A server that has not executed it refuses the connection, so that the session never
// goes back in time. Watches that are set again fire for changes after it: the server told of the
// earlier ones before it sent that transaction.
func (c *monitoredConn) withLastTransaction(request []byte) []byte {
	at := 0
	switch {
	case !c.handshakeSent:
		c.handshakeSent, c.seen, at = true, c.s.lastSeen(), handshakeZxidAt
	case len(request) >= watchedAt+8 && binary.BigEndian.Uint32(request[8:]) == opSetWatches:
		at = watchedAt
	default:
		return request
	}
	request = slices.Clone(request)
	binary.BigEndian.PutUint64(request[at:], uint64(c.seen))
	return request
}

// lastSeen returns the last transaction that a server of the session had executed when it
// answered.
func (s *session) lastSeen() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastTransaction
}

// explainNoSession explains why a server may not begin a session.
func explainNoSession(err error) error {
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("it accepts connections, but does not answer: %w", err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("it closes connections at once: the ensemble has no quorum, or its port is for TLS and the "+
			"client does not use it, or the other "+
			"way round: %w", err)
	}
	return err
}
