//go:build linux

package nemesis

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// A mesh carries the traffic between the members of a cluster, and can isolate one of them from
// the others: then the data is lost without an error on either side. The mesh learns from the
// system which member has opened a connection, because members don't say it.
type mesh struct {
	t       testing.TB
	pid     func(member int) int
	members int

	mu       sync.Mutex
	isolated int  // the isolated member; -1 if none
	halfOpen bool // only the other members are told
	tunnels  map[*tunnel]struct{}
	closed   bool
	running  sync.WaitGroup
}

// A tunnel is a connection from one member to another.
type tunnel struct {
	port, to int // the port of the member that connected, and the member that it connects to
	conns    []net.Conn
	broken   bool // data is no longer passed on
}

// newMesh returns a mesh of members whose process ids pid returns. It calls pid only when a
// member is isolated, so the members may start later.
func newMesh(t testing.TB, members int, pid func(int) int) *mesh {
	m := &mesh{t: t, pid: pid, members: members, isolated: -1, tunnels: map[*tunnel]struct{}{}}
	t.Cleanup(func() {
		m.mu.Lock()
		m.closed = true
		for tn := range m.tunnels {
			tn.close()
		}
		m.mu.Unlock()
		m.running.Wait()
	})
	return m
}

func (tn *tunnel) close() {
	for _, c := range tn.conns {
		_ = c.Close() // it may be closed
	}
}

// proxyAddr returns the address at which others reach a member that listens at addr.
func (m *mesh) proxyAddr(member int, addr string) string {
	m.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		m.t.Fatal(err)
	}
	m.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			m.running.Go(func() { m.serve(conn, member, addr) })
		}
	})
	m.t.Cleanup(func() { _ = listener.Close() }) // runs before the mesh waits for its goroutines
	return listener.Addr().String()
}

// serve serves a connection to a member until it ends.
func (m *mesh) serve(conn net.Conn, to int, addr string) {
	tn := &tunnel{port: conn.RemoteAddr().(*net.TCPAddr).Port, to: to, conns: []net.Conn{conn}}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		tn.close()
		return
	}
	m.tunnels[tn] = struct{}{}
	m.updateBroken(tn)
	refused := m.halfOpen && tn.broken && to == m.isolated
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		tn.close()
		delete(m.tunnels, tn)
	}()
	if refused { // a member that is told nothing would wait long for the isolated one
		return
	}
	server, err := m.dial(addr)
	if err != nil {
		return
	}
	m.mu.Lock()
	tn.conns = append(tn.conns, server)
	closed := m.closed
	m.mu.Unlock()
	if closed {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { m.copy(tn, server, conn) })
	both.Go(func() { m.copy(tn, conn, server) })
	both.Wait()
}

// dial connects to a member. It waits for a while if the member does not listen yet. A client
// takes the proxy for the member, and if the proxy closed the connection at once, ZooKeeper
// servers that start together would wait long before they try again.
func (m *mesh) dial(addr string) (net.Conn, error) {
	for end := time.Now().Add(5 * time.Second); ; {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil || time.Now().After(end) {
			return conn, err
		}
		m.mu.Lock()
		closed := m.closed
		m.mu.Unlock()
		if closed {
			return nil, net.ErrClosed
		}
		time.Sleep(20 * time.Millisecond) // the member is starting
	}
}

// copy passes data on unless the tunnel is broken, and closes the tunnel when the
// connection ends.
func (m *mesh) copy(tn *tunnel, to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if !m.drops(tn) {
			if _, failed := to.Write(buf[:n]); failed != nil {
				err = failed
			}
		}
		if err != nil {
			m.mu.Lock()
			if !tn.broken || !m.halfOpen {
				tn.close()
			}
			m.mu.Unlock()
			return
		}
	}
}

// drops reports whether data in a tunnel is lost.
func (m *mesh) drops(tn *tunnel) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return tn.broken
}

// updateBroken marks a tunnel as broken if it leads to or from the isolated member.
// m.mu must be locked.
func (m *mesh) updateBroken(tn *tunnel) {
	if m.isolated < 0 {
		return
	}
	from := m.memberOf(tn.port)
	tn.broken = from != tn.to && (from == m.isolated || tn.to == m.isolated)
}

// cut isolates a member from the others until heal is called.
func (m *mesh) cut(member int) (heal func()) {
	m.setIsolated(member)
	return func() { m.setIsolated(-1) }
}

// cutHalfOpen isolates a member like cut, but closes the connections on the side of the other
// members: they notice at once, and the isolated member does not.
func (m *mesh) cutHalfOpen(member int) (heal func()) {
	m.mu.Lock()
	m.halfOpen = true
	m.mu.Unlock()
	m.setIsolated(member)
	m.mu.Lock()
	defer m.mu.Unlock()
	for tn := range m.tunnels {
		switch {
		case tn.broken && tn.to == member:
			_ = tn.conns[0].Close() // it may be closed
		case tn.broken && len(tn.conns) > 1:
			_ = tn.conns[1].Close() // it may be closed already
		}
	}
	return func() {
		m.mu.Lock()
		m.halfOpen = false
		m.mu.Unlock()
		m.setIsolated(-1)
	}
}

func (m *mesh) setIsolated(isolated int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.isolated = isolated
	for tn := range m.tunnels {
		if tn.broken {
			tn.close()
		}
		m.updateBroken(tn)
	}
}

// memberOf returns the member whose process owns the local port, or -1.
func (m *mesh) memberOf(port int) int {
	inode, err := socketInode(port)
	if err != nil {
		return -1 // the socket is closed already
	}
	for member := range m.members {
		if hasSocket(m.pid(member), inode) {
			return member
		}
	}
	return -1
}

// socketInode returns the inode of the connected socket with a local port.
func socketInode(port int) (string, error) {
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		table, err := os.ReadFile(file)
		if err != nil {
			continue // there may be no IPv6
		}
		local := fmt.Sprintf(":%04X", port)
		for line := range strings.Lines(string(table)) {
			// The fields are number, local, remote, state, queues, timer,
			// retransmissions, uid, timeout, inode.
			f := strings.Fields(line)
			if len(f) > 9 && strings.HasSuffix(f[1], local) && f[9] != "0" {
				return f[9], nil
			}
		}
	}
	return "", errors.New("there is no such socket")
}

// hasSocket reports whether a process has a socket.
func hasSocket(pid int, inode string) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	files, _ := os.ReadDir(dir) // a process that has ended has no files
	for _, f := range files {
		if to, _ := os.Readlink(dir + "/" + f.Name()); to == "socket:["+inode+"]" {
			return true
		}
	}
	return false
}

// TestMesh checks that a mesh loses exactly the data to and from the isolated member, and
// that new connections work after the heal.
func TestMesh(t *testing.T) {
	m := newMesh(t, 3, func(int) int { return os.Getpid() }) // all connections come from member 0
	var addrs []string
	for member := range 3 {
		echo := livetest.Fake(t, func(conn net.Conn) { _, _ = io.Copy(conn, conn) })
		addrs = append(addrs, m.proxyAddr(member, echo))
	}
	dial := func(member int) net.Conn {
		conn, err := net.Dial("tcp", addrs[member])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	answers := func(conn net.Conn, wait time.Duration) bool {
		_, err1 := conn.Write([]byte("x"))
		_ = conn.SetReadDeadline(time.Now().Add(wait))
		_, err2 := conn.Read(make([]byte, 1))
		return err1 == nil && err2 == nil
	}
	const long, short = 20 * time.Second, 50 * time.Millisecond
	one, two := dial(1), dial(2)
	if !answers(one, long) || !answers(two, long) {
		t.Fatal("a connection does not answer, and nobody is cut off")
	}
	heal := m.cut(1)
	if answers(one, short) || answers(dial(1), short) {
		t.Error("member 1 answers, and is cut off")
	}
	if !answers(two, long) {
		t.Error("member 2 does not answer, and 1 is cut off")
	}
	heal()
	if answers(one, short) || !answers(dial(1), long) || !answers(two, long) {
		t.Error("after the heal, an old connection of member 1 answers, or a new one or another one does not")
	}
	heal = m.cut(0)
	if answers(two, short) || answers(dial(1), short) {
		t.Error("a member answers to 0, and that is cut off")
	}
	heal()
}
