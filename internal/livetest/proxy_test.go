package livetest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// An echoServer answers each line with "re: " and the line.
type echoServer struct {
	listener net.Listener

	mu   sync.Mutex
	got  []string // lines
	open int      // connections
}

func newEcho(t *testing.T) *echoServer {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echoServer{listener: listener}
	var running sync.WaitGroup
	t.Cleanup(func() {
		listener.Close()
		// The proxy was started later, so it has ended already, and with it all connections.
		running.Wait()
	})
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			e.count(1, "")
			running.Go(func() {
				defer conn.Close()
				defer e.count(-1, "")
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					e.count(0, lines.Text())
					fmt.Fprintf(conn, "re: %s\n", lines.Text())
				}
			})
		}
	})
	return e
}

func (e *echoServer) count(conns int, line string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open += conns
	if line != "" {
		e.got = append(e.got, line)
	}
}

func (e *echoServer) lines() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.got)
}

func (e *echoServer) conns() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.open
}

// A client is one connection through a proxy.
type client struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, p *Proxy) *client {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{t, conn, bufio.NewReader(conn)}
}

func (c *client) send(line string) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c, line); err != nil {
		c.t.Fatalf("send %q: %v", line, err)
	}
}

// wantNext checks the next answer or error.
func (c *client) wantNext(answer string, end error) {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(Patience))
	got, err := c.in.ReadString('\n')
	if strings.TrimSpace(got) != answer || !errors.Is(err, end) {
		c.t.Errorf("answer = %.40q, %v, want %.40q, %v", got, err, answer, end)
	}
}

// wantNothing checks that nothing arrives for a while.
func (c *client) wantNothing() {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(3 * quietTime))
	if got, err := c.in.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("answer = %q, %v, want neither bytes nor an end", got, err)
	}
}

func wait(t *testing.T, lost <-chan struct{}) {
	t.Helper()
	select {
	case <-lost:
	case <-time.After(Patience):
		t.Fatal("nothing was lost")
	}
}

func awaitConns(t *testing.T, e *echoServer, want int) {
	t.Helper()
	Await(t, "change of connections", func() error {
		if got := e.conns(); got != want {
			return fmt.Errorf("%d connections to the server, want %d", got, want)
		}
		return nil
	})
}

func TestProxy(t *testing.T) {
	tests := []struct {
		name string
		run  func(t *testing.T, p *Proxy, e *echoServer, c *client) // c has got an answer already
	}{
		{"PassesOn", func(t *testing.T, p *Proxy, e *echoServer, c *client) {
			big := strings.Repeat("x", 50_000)
			c.send(big)
			c.wantNext("re: "+big, nil)
			dial(t, p).Close()
			c.send("again")
			c.Conn.(*net.TCPConn).CloseWrite()
			c.wantNext("re: again", nil) // half of a connection may close
			c.wantNext("", io.EOF)
			awaitConns(t, e, 0)
		}},
		{"Cut", func(t *testing.T, p *Proxy, e *echoServer, c *client) {
			p.Cut()
			c.wantNext("", syscall.ECONNRESET)
			awaitConns(t, e, 0)
			c = dial(t, p)
			c.send("new")
			c.wantNext("re: new", nil)
		}},
		{"Sever", func(t *testing.T, p *Proxy, e *echoServer, c *client) {
			gone := dial(t, p)
			gone.send("hello")
			gone.wantNext("re: hello", nil)
			heal := p.Sever()
			fresh := dial(t, p)
			c.send("lost")
			fresh.send("lost")
			gone.Close()
			c.wantNothing()
			fresh.wantNothing()
			if got := e.conns(); got != 2 {
				t.Errorf("%d connections to the server, want 2: it must not notice", got)
			}
			heal()
			c.wantNext("", syscall.ECONNRESET)
			fresh.wantNext("", syscall.ECONNRESET)
			awaitConns(t, e, 0)
			c = dial(t, p)
			c.send("found")
			c.wantNext("re: found", nil)
			if got := e.lines(); slices.Contains(got, "lost") {
				t.Errorf("the server got %q, want nothing of what was lost", got)
			}
		}},
		{"Sent", func(t *testing.T, p *Proxy, _ *echoServer, c *client) {
			heal := p.Stall()
			seen, unseen := p.Sent("ell"), p.Sent("something else")
			c.send("hello")
			select {
			case <-seen:
			case <-time.After(Patience):
				t.Error("it is not told that a client has sent what it waits for")
			}
			select {
			case <-unseen:
				t.Error("it is told of what no client has sent")
			default:
			}
			heal()
			c.wantNext("re: hello", nil)
		}},
		{"Stall", func(t *testing.T, p *Proxy, e *echoServer, c *client) {
			gone := dial(t, p)
			heal := p.Stall()
			fresh := dial(t, p)
			c.send("late")
			fresh.send("later")
			gone.send("too late")
			gone.Close()
			c.wantNothing()
			fresh.wantNothing()
			if got := len(e.lines()); got != 1 {
				t.Errorf("the server got %d lines, want 1", got)
			}
			heal()
			c.wantNext("re: late", nil)
			fresh.wantNext("re: later", nil)
			Await(t, "delivery for one who has left", func() error {
				if got := e.lines(); !slices.Contains(got, "too late") {
					return fmt.Errorf("the server got %q", got)
				}
				return nil
			})
		}},
		{"StallThenSever", func(t *testing.T, p *Proxy, e *echoServer, c *client) {
			p.Stall()
			c.send("lost")
			p.Sever()
			p.Heal()
			c.wantNext("", syscall.ECONNRESET)
			if got := e.lines(); slices.Contains(got, "lost") {
				t.Errorf("the server got %q, want nothing of what was lost", got)
			}
		}},
		{"LoseThenClose", func(t *testing.T, p *Proxy, e *echoServer, c *client) {
			lost := p.LoseAnswers(1, ThenClose, "set", "owner-1")
			c.send("set owner-2")
			c.wantNext("re: set owner-2", nil)
			c.send("get owner-1")
			c.wantNext("re: get owner-1", nil)
			fmt.Fprint(c, "set own") // a request in two parts
			other := dial(t, p)
			other.send("hello")
			other.wantNext("re: hello", nil)
			c.send("er-1")
			wait(t, lost)
			c.wantNext("", io.EOF)
			if got := e.lines(); !slices.Contains(got, "set owner-1") {
				t.Errorf("the server got %q, want the request whose answer was lost", got)
			}
			other.send("set owner-1")
			other.wantNext("re: set owner-1", nil)
		}},
		{"LoseThenHang", func(t *testing.T, p *Proxy, e *echoServer, c *client) {
			lost := p.LoseAnswers(1, ThenHang)
			c.send("one")
			wait(t, lost)
			c.send("two")
			c.wantNothing()
			if got := e.lines(); slices.Contains(got, "two") || !slices.Contains(got, "one") {
				t.Errorf("the server got %q, want one and not two", got)
			}
			c.Close()
			awaitConns(t, e, 0)
		}},
		{"LoseSeveral", func(t *testing.T, p *Proxy, e *echoServer, c *client) {
			lost := p.LoseAnswers(2, ThenHang, "x")
			c.send("x1")
			c.wantNothing()
			select {
			case <-lost:
				t.Error("two are lost after one request")
			default:
			}
			second := dial(t, p)
			second.send("x2")
			wait(t, lost)
			third := dial(t, p)
			third.send("x3")
			third.wantNext("re: x3", nil)
			p.Heal()
			c.wantNext("", syscall.ECONNRESET)
			second.wantNext("", syscall.ECONNRESET)
			third.send("y")
			third.wantNext("re: y", nil)
		}},
		{"Delay", func(t *testing.T, p *Proxy, e *echoServer, c *client) {
			p.Delay(50*time.Millisecond, 100*time.Millisecond)
			sent := time.Now()
			c.send("slow")
			c.send("slow, too") // both are under way at the same time
			c.wantNext("re: slow", nil)
			c.wantNext("re: slow, too", nil)
			if took := time.Since(sent); took < 150*time.Millisecond || took > 10*time.Second {
				t.Errorf("answers after %v, want about 150ms", took)
			}
			p.Stall()() // ends only the stall
			c.send("slow again")
			c.wantNext("re: slow again", nil)
			if took := time.Since(sent); took < 300*time.Millisecond {
				t.Errorf("the next answer after %v, want 300ms", took)
			}
			p.Heal()
			c.send("fast")
			c.wantNext("re: fast", nil)
		}},
		{"CutWhileDelayed", func(t *testing.T, p *Proxy, e *echoServer, c *client) {
			p.Delay(time.Hour, time.Hour)
			c.send("never")
			p.Cut()
			c.wantNext("", syscall.ECONNRESET)
		}},
		{"ServerIsDown", func(t *testing.T, p *Proxy, e *echoServer, c *client) {
			e.listener.Close()
			conn, err := net.Dial("tcp", p.Addr())
			if err == nil { // the reset may come during Dial or after it
				_, err = conn.Read(make([]byte, 1))
				conn.Close()
			}
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("connection to a server that is down = %v, want %v", err, syscall.ECONNRESET)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newEcho(t)
			p := NewProxy(t, e.listener.Addr().String())
			c := dial(t, p)
			c.send("first")
			c.wantNext("re: first", nil)
			tt.run(t, p, e, c)
		})
	}
}

// TestProxyEnds checks that a proxy ends with its test, whatever the state of its connections.
func TestProxyEnds(t *testing.T) {
	var p *Proxy
	t.Run("Test", func(t *testing.T) {
		p = NewProxy(t, newEcho(t).listener.Addr().String())
		for _, fault := range []func(){
			func() { p.Delay(time.Hour, 0) },
			func() { p.LoseAnswers(1, ThenHang) },
			func() { p.Stall() },
			func() { p.Sever() },
			func() { p.Stall() },
		} {
			fault()
			dial(t, p).send("hello")
		}
	})
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Dial after the end = %v, want %v", err, syscall.ECONNREFUSED)
	}
}
