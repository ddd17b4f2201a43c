package serve

import (
	"net"
	"net/netip"
	"sync"
)

// Network returns what counts as one client: an IPv4 address, or the /64 of an IPv6 address, whose
// other half a client can choose.
func Network(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits)
	return p
}

// LimitConnections returns a listener for TCP that bounds how many connections each client, by its
// [Network], has open. It closes each one above the limit at once, and calls refused, which returns
// soon. Behind a proxy, the proxy is the only client.
//
// A listener with TLS goes around it, so that handshakes count, too.
func LimitConnections(l net.Listener, most int, refused func(netip.Prefix)) net.Listener {
	return &limitedListener{Listener: l, most: most, refused: refused, open: map[netip.Prefix]int{}}
}

// A limitedListener is the listener of LimitConnections.
type limitedListener struct {
	net.Listener
	most    int
	refused func(netip.Prefix)

	mu   sync.Mutex
	open map[netip.Prefix]int // connections; a client without any is not in it
}

// Accept implements [net.Listener].
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			return conn, nil
		}
		client := Network(tcp.RemoteAddr().(*net.TCPAddr).AddrPort().Addr())
		if l.admit(client) {
			return &limitedConn{TCPConn: tcp, ended: sync.OnceFunc(func() { l.release(client) })}, nil
		}
		_ = tcp.Close() // the client may have gone already
		l.refused(client)
	}
}

// admit counts a connection, unless its client has as many as it may.
func (l *limitedListener) admit(client netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client] >= l.most {
		return false
	}
	l.open[client]++
	return true
}

// release counts the end of a connection.
func (l *limitedListener) release(client netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client]--; l.open[client] == 0 {
		delete(l.open, client)
	}
}

// A limitedConn is a connection that counts until it is closed. It keeps all other methods of a
// TCPConn, which the server looks for.
type limitedConn struct {
	*net.TCPConn
	ended func()
}

// Close implements [net.Conn].
func (c *limitedConn) Close() error {
	err := c.TCPConn.Close()
	c.ended()
	return err
}
