package livetest

import (
	"net"
	"testing"
)

// Fake starts a server that a test makes up, and returns its address. serve is called with each
// connection, in a goroutine of its own. The connection is closed when serve has returned.
func Fake(t testing.TB, serve func(net.Conn)) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err, "listen")
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close() //nolint:errcheck // serve has ended
				serve(conn)
			}()
		}
	}()
	return listener.Addr().String()
}
