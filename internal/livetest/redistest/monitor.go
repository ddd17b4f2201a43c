package redistest

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"
)

// Monitor returns the commands that clients send to a server without a password while f runs: the
// names in upper case, by the address of the client. Those that scripts call are left out.
func (n *Node) Monitor(f func()) map[string][]string {
	n.t.Helper()
	conn, err := net.DialTimeout("tcp", n.Addr(), timeout)
	if err != nil {
		n.t.Fatalf("MONITOR: %v", err)
	}
	defer conn.Close() //nolint:errcheck // it is only read
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		n.t.Fatalf("MONITOR: %v", err)
	}
	in := bufio.NewReader(conn)
	next := func() string {
		n.t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
			n.t.Fatal(err)
		}
		line, err := in.ReadString('\n')
		if err != nil {
			n.t.Fatalf("MONITOR: %v", err)
		}
		return line
	}
	next() // OK
	f()
	const last = "the end of Monitor"
	n.Must("ECHO", last)
	seen := make(map[string][]string)
	for line := next(); !strings.Contains(line, last); line = next() {
		// +1795627557.084080 [0 127.0.0.1:60866] "SET" "key" "value"
		_, rest, _ := strings.Cut(line, " [")
		from, rest, _ := strings.Cut(rest, `] "`)
		name, _, _ := strings.Cut(rest, `"`)
		if _, addr, _ := strings.Cut(from, " "); addr != "lua" {
			seen[addr] = append(seen[addr], strings.ToUpper(name))
		}
	}
	return seen
}

// CheckSaved runs f, which calls scripts, and checks that each of these is followed by a WAITAOF
// from the same client.
func CheckSaved(t testing.TB, n *Node, f func()) {
	t.Helper()
	scripts := 0
	for addr, names := range n.Monitor(f) {
		for i, name := range names {
			if !strings.HasPrefix(name, "EVAL") {
				continue
			}
			scripts++
			if i+1 == len(names) || names[i+1] != "WAITAOF" {
				t.Errorf("%s sends %v: no WAITAOF follows number %d", addr, names, i)
			}
		}
	}
	if scripts == 0 {
		t.Error("no scripts were called")
	}
}
