package serve

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"testing"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/memlock"
)

// ask sends a request over a connection, and returns an error unless it is answered.
func ask(conn net.Conn) error {
	req, err := http.NewRequest(http.MethodGet, "http://localhost/healthz", nil)
	if err != nil {
		return err
	}
	if err := req.Write(conn); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// TestLimitConnections opens more connections from one address than it may have.
func TestLimitConnections(t *testing.T) {
	const most = 3
	s, err := New(memlock.New(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	inner, err := net.Listen("tcp4", "0.0.0.0:0") // not one address, so that there are several clients
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan netip.Prefix, 1)
	listener := LimitConnections(inner, most, func(p netip.Prefix) {
		select {
		case refused <- p:
		default: // the test looks at the first one only
		}
	})
	server := &http.Server{Handler: s}         // without time limits, which would close connections, too
	go func() { _ = server.Serve(listener) }() // until it is closed
	t.Cleanup(func() { _ = server.Close() })   // clients that have gone are of no interest
	_, port, err := net.SplitHostPort(inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	dial := func(from string) net.Conn {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := d.DialContext(t.Context(), "tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() }) // it may be closed already
		return conn
	}

	var open []net.Conn
	for range most {
		open = append(open, dial("127.0.0.1"))
	}
	if ask(dial("127.0.0.1")) == nil {
		t.Error("a connection above the limit is served")
	}
	if got, want := (<-refused).String(), "127.0.0.1/32"; got != want {
		t.Errorf("%s is refused, want %s", got, want)
	}
	if runtime.GOOS == "linux" { // others have one loopback address only
		if err := ask(dial("127.0.0.2")); err != nil {
			t.Errorf("a connection of another client: %v", err)
		}
	}
	for _, conn := range open {
		if err := ask(conn); err != nil {
			t.Errorf("a connection below the limit: %v", err)
		}
	}
	if err := open[0].Close(); err != nil {
		t.Fatal(err)
	}
	livetest.Await(t, "room for a connection", func() error { // the server notices it soon
		conn := dial("127.0.0.1")
		if err := ask(conn); err != nil {
			return errors.Join(err, conn.Close())
		}
		return nil
	})
}

// TestLimitCounts checks that the end of a connection counts once, and that a client without
// connections is forgotten.
func TestLimitCounts(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	l := LimitConnections(inner, 2, func(netip.Prefix) { t.Error("a connection is refused") }).(*limitedListener)
	for range 3 {
		var pairs [][2]net.Conn
		for range 2 {
			client, err := net.Dial("tcp", inner.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			accepted, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			pairs = append(pairs, [2]net.Conn{client, accepted})
		}
		for _, p := range pairs {
			_, canHalfClose := p[1].(interface{ CloseWrite() error })
			if !canHalfClose {
				t.Error("the server can't end its side of a connection alone")
			}
			if err := errors.Join(p[0].Close(), p[1].Close()); err != nil {
				t.Error(err)
			}
			_ = p[1].Close() // again: it returns an error
		}
		if n := len(l.open); n != 0 {
			t.Errorf("%d clients without connections are remembered", n)
		}
	}
}

func TestNetwork(t *testing.T) {
	for _, tt := range []struct{ addr, want string }{
		{"192.0.2.1", "192.0.2.1/32"},
		{"::ffff:192.0.2.1", "192.0.2.1/32"},
		{"2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
		{"fe80::1%eth0", "fe80::/64"},
	} {
		if got := Network(netip.MustParseAddr(tt.addr)).String(); got != tt.want {
			t.Errorf("Network(%s) = %s, want %s", tt.addr, got, tt.want)
		}
	}
}
