package redistest

import (
	"bufio"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// A loggedCommand is one that a server has executed: who sent it, "lua" if a script did, and its
// name in upper case.
type loggedCommand struct{ client, name string }

// monitor returns the commands that a server without a password executes while f runs.
func (n *Node) monitor(f func()) (seen []loggedCommand) {
	n.t.Helper()
	conn, err := net.DialTimeout("tcp", n.Addr(), timeout)
	livetest.Must(n.t, err, "MONITOR")
	defer conn.Close() //nolint:errcheck // it is only read
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		n.t.Fatalf("MONITOR: %v", err)
	}
	in := bufio.NewReader(conn)
	next := func() string {
		n.t.Helper()
		livetest.Must(n.t, conn.SetReadDeadline(time.Now().Add(timeout)), "MONITOR")
		line, err := in.ReadString('\n')
		livetest.Must(n.t, err, "MONITOR")
		return line
	}
	next() // OK
	f()
	const last = "the end of Monitor"
	n.Must("ECHO", last)
	for line := next(); !strings.Contains(line, last); line = next() {
		// +1795627557.084080 [0 127.0.0.1:60866] "SET" "key" "value"
		_, rest, _ := strings.Cut(line, " [")
		from, rest, _ := strings.Cut(rest, `] "`)
		name, _, _ := strings.Cut(rest, `"`)
		_, client, _ := strings.Cut(from, " ")
		seen = append(seen, loggedCommand{client, strings.ToUpper(name)})
	}
	return seen
}

// CheckSaved runs f, which calls scripts, and checks that the next command of a client whose script
// has written something is WAITAOF.
func CheckSaved(t testing.TB, n *Node, f func()) {
	t.Helper()
	running, saved := "", 0
	unsaved := make(map[string]bool) // by client
	for _, c := range n.monitor(f) {
		switch {
		case c.client == "lua":
			if n.writes(c.name) {
				unsaved[running] = true
			}
			continue
		case unsaved[c.client] && c.name != "WAITAOF":
			t.Errorf("%s sends %s after a script that has written, want WAITAOF", c.client, c.name)
		case unsaved[c.client]:
			saved++
		}
		delete(unsaved, c.client)
		if strings.HasPrefix(c.name, "EVAL") {
			running = c.client
		}
	}
	for client := range unsaved {
		t.Errorf("%s sends nothing after a script that has written, want WAITAOF", client)
	}
	if saved == 0 {
		t.Error("no script has written anything")
	}
}

// writes reports whether a command may change the server's data.
func (n *Node) writes(command string) bool {
	info := n.Must("COMMAND", "INFO", command).([]any)[0].([]any)
	return slices.Contains(info[2].([]any), any("write")) // name, arity, flags
}
