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
)

// A mesh carries what the members of a cluster say to each other, and can cut one of them off from the others: what is sent then is
// lost, and nobody is told. Who has connected it learns from the system, because members don't say it.
type mesh struct {
	t       testing.TB
	pid     func(member int) int
	members int

	mu      sync.Mutex
	apart   int  // the member that is cut off; -1 if none is
	half    bool // only the others are told
	tunnels map[*tunnel]struct{}
	closed  bool
	running sync.WaitGroup
}

// A tunnel is a connection of one member to another.
type tunnel struct {
	port, to int // the port that it comes from, and the member that it goes to
	conns    []net.Conn
	broken   bool // nothing is passed on in it any more
}

// newMesh makes a mesh of members whose processes pid returns. It is asked when one is cut off, so they run by then.
func newMesh(t testing.TB, members int, pid func(int) int) *mesh {
	m := &mesh{t: t, pid: pid, members: members, apart: -1, tunnels: map[*tunnel]struct{}{}}
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

// through returns the address by which others reach a member that listens at addr.
func (m *mesh) through(member int, addr string) string {
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
			m.running.Go(func() { m.carry(conn, member, addr) })
		}
	})
	m.t.Cleanup(func() { _ = listener.Close() }) // before the mesh waits for its goroutines
	return listener.Addr().String()
}

// carry serves a connection to a member until its end.
func (m *mesh) carry(conn net.Conn, to int, addr string) {
	tn := &tunnel{port: conn.RemoteAddr().(*net.TCPAddr).Port, to: to, conns: []net.Conn{conn}}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		tn.close()
		return
	}
	m.tunnels[tn] = struct{}{}
	m.judge(tn)
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		tn.close()
		delete(m.tunnels, tn)
	}()
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

// dial connects to a member. One that does not listen is waited for, for a while: who has reached a proxy takes it for the member,
// and if that hangs up at once, servers of ZooKeeper that start together wait for long until they try again.
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
		time.Sleep(20 * time.Millisecond) // it starts
	}
}

// copy passes on what it may, and ends the tunnel at its end.
func (m *mesh) copy(tn *tunnel, to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if !m.loses(tn) {
			if _, failed := to.Write(buf[:n]); failed != nil {
				err = failed
			}
		}
		if err != nil {
			m.mu.Lock()
			if !tn.broken || !m.half {
				tn.close()
			}
			m.mu.Unlock()
			return
		}
	}
}

// loses reports whether what is sent in a tunnel is lost.
func (m *mesh) loses(tn *tunnel) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return tn.broken
}

// judge breaks a tunnel that leads to or from the member that is cut off. It is called with m.mu held.
func (m *mesh) judge(tn *tunnel) {
	if m.apart < 0 {
		return
	}
	from := m.owner(tn.port)
	tn.broken = from != tn.to && (from == m.apart || tn.to == m.apart)
}

// cut cuts a member off from the others, until heal is called.
func (m *mesh) cut(member int) (heal func()) {
	m.set(member)
	return func() { m.set(-1) }
}

// strand is cut where the other members notice at once that their connections are gone, and the one
// that is cut off does not.
func (m *mesh) strand(member int) (heal func()) {
	m.mu.Lock()
	m.half = true
	m.mu.Unlock()
	m.set(member)
	m.mu.Lock()
	defer m.mu.Unlock()
	for tn := range m.tunnels {
		switch {
		case tn.broken && tn.to == member:
			_ = tn.conns[0].Close() // it may be closed
		case tn.broken && len(tn.conns) > 1:
			_ = tn.conns[1].Close() // the same
		}
	}
	return func() {
		m.mu.Lock()
		m.half = false
		m.mu.Unlock()
		m.set(-1)
	}
}

func (m *mesh) set(apart int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.apart = apart
	for tn := range m.tunnels {
		if tn.broken {
			tn.close()
		}
		m.judge(tn)
	}
}

// owner is the member whose process has the local port, or -1.
func (m *mesh) owner(port int) int {
	inode, err := inodeOf(port)
	if err != nil {
		return -1 // it is closed already
	}
	for member := range m.members {
		if hasSocket(m.pid(member), inode) {
			return member
		}
	}
	return -1
}

// inodeOf returns the inode of the connected socket with a local port.
func inodeOf(port int) (string, error) {
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		table, err := os.ReadFile(file)
		if err != nil {
			continue // there may be no IPv6
		}
		local := fmt.Sprintf(":%04X", port)
		for line := range strings.Lines(string(table)) {
			f := strings.Fields(line) // number, local, remote, state, queues, timer, retransmissions, uid, timeout, inode
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
	files, _ := os.ReadDir(dir) // a process that has ended has none
	for _, f := range files {
		if to, _ := os.Readlink(dir + "/" + f.Name()); to == "socket:["+inode+"]" {
			return true
		}
	}
	return false
}

// partition adds the fault that a member is cut off from the others, but not from clients.
func (w *world) partition(m *mesh, leader func() int, least time.Duration) {
	w.add("partition", func(last time.Duration) {
		member := w.r.IntN(m.members)
		if w.r.IntN(2) == 0 {
			member = leader()
		}
		w.during("partition", "", func() {
			heal := m.cut(member)
			w.meanwhile(least + last)
			heal()
		})
	})
}

// A mesh loses what is sent to a member that is cut off, and by it, and nothing else; after the heal there are new connections.
func TestMesh(t *testing.T) {
	m := newMesh(t, 3, func(int) int { return os.Getpid() }) // all connections come from member 0
	var addrs []string
	for member := range 3 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		go echo(listener)
		addrs = append(addrs, m.through(member, listener.Addr().String()))
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

// echo answers what it gets.
func echo(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn)
		}()
	}
}
