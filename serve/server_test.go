package serve

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/remotelock"
	"github.com/sniblock/snib/remotelock/wire"
)

// A pipeListener accepts the connections that dial makes. They have no buffers, so what the server
// writes waits until the client reads.
type pipeListener struct {
	net.Listener // for Addr, which nobody calls
	conns        chan net.Conn
	closed       chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error { close(l.closed); return nil }

// A localPipe is a connection that seems to come over the loopback interface.
type localPipe struct{ net.Conn }

var loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7420}

func (localPipe) LocalAddr() net.Addr  { return loopback }
func (localPipe) RemoteAddr() net.Addr { return loopback }

// dialSlow returns a connection to a server in the bubble of a test. Its client waits for a minute
// at most, by the fake clock.
func dialSlow(t *testing.T, store *memlock.Driver) net.Conn {
	t.Helper()
	dial := servePipes(t, store, Options{Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 1<<20))
	})}, http.Handler.ServeHTTP)
	client := dial()
	t.Cleanup(func() { _ = client.Close() }) // the server may have closed it
	if err := client.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return client
}

// A proxy gets each request before the service h does.
type proxy func(h http.Handler, w http.ResponseWriter, r *http.Request)

// servePipes starts a server in the bubble of a test, and returns a func that connects to it
// through a proxy.
func servePipes(t *testing.T, store driver.Driver, opts Options, p proxy) (dial func() net.Conn) {
	t.Helper()
	s, err := New(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := s.NewServer()
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p(s, w, r) })
	go func() { _ = server.Serve(l) }() // until it is closed
	t.Cleanup(func() {
		if err := errors.Join(server.Close(), s.Drain(context.Background()), store.Close()); err != nil {
			t.Error(err)
		}
	})
	return func() net.Conn {
		client, accepted := net.Pipe()
		l.conns <- localPipe{accepted}
		return client
	}
}

// wantCut checks that a connection was cut off after a time, and not by the client.
func wantCut(t *testing.T, err error, began time.Time, want time.Duration) {
	t.Helper()
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection ends with %v, want that the server cuts it off", err)
	}
	if got := time.Since(began); got != want {
		t.Errorf("the client was cut off after %v, want %v", got, want)
	}
}

// TestBodyThatDoesNotCome sends the header of a request with a body, and no body. The service does
// not read it, but net/http does.
func TestBodyThatDoesNotCome(t *testing.T) {
	for _, path := range []string{wire.PathHealth, "/", wire.PathAcquire} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, began := dialSlow(t, memlock.New()), time.Now()
				head := "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
				if _, err := io.WriteString(conn, head); err != nil {
					t.Fatal(err)
				}
				_, err := io.Copy(io.Discard, conn)
				if err == nil {
					err = io.EOF
				}
				wantCut(t, err, began, readTimeout)
			})
		})
	}
}

// TestAnswerThatIsNotTakenIn requests what is written in large pieces, and reads nothing.
func TestAnswerThatIsNotTakenIn(t *testing.T) {
	for _, path := range []string{"/console/console.js", wire.PathMetrics} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, began := dialSlow(t, memlock.New()), time.Now()
				if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				// The server reads one byte, to learn whether the client goes, and the others once the
				// answer is sent.
				_, err := io.WriteString(conn, "GET")
				wantCut(t, err, began, writeTimeout)
			})
		})
	}
}

// TestStreamThatIsNotTakenIn requests a file over HTTP/2, and never allows the server to send any
// of it.
func TestStreamThatIsNotTakenIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, began := dialSlow(t, memlock.New()), time.Now()
		go func() { _ = requestWithoutWindow(conn) }() // the answers say whether it was sent
		frames := bufio.NewReader(conn)
		for {
			kind, err := readFrame(frames)
			if err != nil {
				t.Fatalf("the stream is not reset: %v", err)
			}
			if kind == 3 { // RST_STREAM
				break
			}
		}
		if got := time.Since(began); got != writeTimeout {
			t.Errorf("the stream was reset after %v, want %v", got, writeTimeout)
		}
	})
}

// TestConnectionThatIsNotRead requests the same, and does not even read that the stream is reset.
func TestConnectionThatIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := dialSlow(t, memlock.New())
		if err := requestWithoutWindow(conn); err != nil {
			t.Fatal(err)
		}
		time.Sleep(writeTimeout + time.Second)
		if _, err := io.WriteString(conn, noWindow); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("after %v without a read, a write of the client = %v, want that the connection is closed", writeTimeout, err)
		}
	})
}

// TestSlowReaderOfEvents reads a long list of locks in pieces, each in time. The stream ends
// nevertheless.
func TestSlowReaderOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		for i := range 400 {
			req := driver.Request{Name: fmt.Sprint("lock ", i), ID: "a", TTL: time.Hour, Holder: driver.Holder{Label: strings.Repeat("x", 1000)}}
			livetest.Acquire(t, store, req)
		}
		conn, began := dialSlow(t, store), time.Now()
		if err := conn.SetDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET "+wire.PathEvents+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		piece := make([]byte, 1<<20)
		for {
			if _, err := conn.Read(piece); err != nil {
				break
			}
			time.Sleep(writeTimeout - time.Second)
		}
		// The last write, what is left in buffers, and the pause before the client notices: each takes
		// writeTimeout at most.
		if got, most := time.Since(began), streamTimeout+3*writeTimeout; got < streamTimeout || got > most {
			t.Errorf("the stream ended after %v, want %v, and %v at most", got, streamTimeout, most)
		}
	})
}

// A slowList is a store that needs a pause before each lock of a list.
type slowList struct {
	*memlock.Driver
	pause time.Duration
}

func (s slowList) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	return s.Driver.List(ctx, prefix, func(st driver.Status) bool {
		time.Sleep(s.pause)
		return yield(st)
	})
}

// TestPausesOfAnswers reads what has pauses that are longer than writeTimeout. It is not cut off,
// for nothing is to be taken in meanwhile.
func TestPausesOfAnswers(t *testing.T) {
	const pause = writeTimeout + time.Second
	for _, isHTTP2 := range []bool{false, true} {
		for path, want := range map[string]time.Duration{wire.PathEvents: streamTimeout, wire.PathLocks: 2 * pause} {
			t.Run(fmt.Sprintf("HTTP2=%t%s", isHTTP2, path), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := memlock.New()
					if path == wire.PathLocks {
						for _, name := range []string{"a", "b"} {
							livetest.Acquire(t, store, driver.Request{Name: name, ID: "a", TTL: time.Hour})
						}
					}
					dial := servePipes(t, slowList{store, pause}, Options{limits: limits{events: pause}}, http.Handler.ServeHTTP)
					transport := &http.Transport{Protocols: new(http.Protocols),
						DialContext: func(context.Context, string, string) (net.Conn, error) {
							return dial(), nil
						}}
					transport.Protocols.SetHTTP1(!isHTTP2)
					transport.Protocols.SetUnencryptedHTTP2(isHTTP2)
					defer transport.CloseIdleConnections()
					req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, nil)
					if err != nil {
						t.Fatal(err)
					}
					began := time.Now()
					resp, err := transport.RoundTrip(req)
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					if _, err := io.Copy(io.Discard, resp.Body); err != nil || time.Since(began) != want {
						t.Errorf("the answer ended after %v, with %v, want %v", time.Since(began), err, want)
					}
				})
			})
		}
	}
}

// openThrough returns a driver for a service with a proxy before it, at two addresses if there
// are no others.
func openThrough(t *testing.T, store driver.Driver, p proxy, servers ...string) *remotelock.Driver {
	t.Helper()
	if len(servers) == 0 {
		servers = []string{"http://localhost", "http://127.0.0.1"}
	}
	dial := servePipes(t, store, Options{Grace: graceOf}, p)
	d, err := remotelock.Open(t.Context(), remotelock.Config{Servers: servers,
		Dial: func(context.Context, string, string) (net.Conn, error) { return dial(), nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// TestWaitForGrants acquires a lock in a store that answers, and grants nothing for longer than
// RetryTimeout. The acquisition waits as for a holder.
func TestWaitForGrants(t *testing.T) {
	for _, why := range []error{errGrace(time.Hour), fmt.Errorf("%w: %w", driver.ErrUnavailable, driver.ErrFull)} {
		synctest.Test(t, func(t *testing.T) {
			store, withdrawals := &moodyStore{Driver: memlock.New(), acquires: why}, new(atomic.Int32)
			d := openThrough(t, store, func(h http.Handler, w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == wire.PathWithdraw {
					withdrawals.Add(1)
				}
				h.ServeHTTP(w, r)
			})
			req := driver.Request{Name: "job", ID: longID("a"), TTL: time.Minute}
			for _, once := range []driver.Request{{ID: longID("b"), NoWait: true}, {ID: longID("c"), RetryTimeout: time.Nanosecond}} {
				once.Name, once.TTL = "job", time.Minute
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, err := d.Acquire(ctx, once)
				cancel()
				if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrFull) != errors.Is(why, driver.ErrFull) {
					t.Errorf("Acquire that does not wait for %v = %v", why, err)
				}
			}
			time.Sleep(time.Minute) // they are withdrawn
			withdrawals.Store(0)
			time.AfterFunc(3*driver.RetryTimeout, func() { store.set(nil, nil) })
			if _, err := d.Acquire(t.Context(), req); err != nil || withdrawals.Load() > 0 {
				t.Errorf("Acquire = %v after %d withdrawals, want the lock once the store grants it: %v", err, withdrawals.Load(), why)
			}
		})
	}
}

// TestReleaseAnswerLost loses the answer to a release. The next replica, or the next one behind the
// same address, says that there is no such hold, and that is no loss.
func TestReleaseAnswerLost(t *testing.T) {
	for _, servers := range [][]string{{"http://localhost"}, {"http://localhost", "http://127.0.0.1"}} {
		t.Run(fmt.Sprint(len(servers)), func(t *testing.T) { loseReleaseAnswer(t, servers) })
	}
}

func loseReleaseAnswer(t *testing.T, servers []string) {
	synctest.Test(t, func(t *testing.T) {
		lost := false
		proxy := func(h http.Handler, w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == wire.PathRelease && !lost {
				lost, w = true, httptest.NewRecorder()
				defer panic(http.ErrAbortHandler)
			}
			h.ServeHTTP(w, r)
		}
		d := openThrough(t, memlock.New(), proxy, servers...)
		l := livetest.Acquire(t, d, driver.Request{Name: "job", ID: longID("a"), TTL: time.Minute})
		if err := l.Release(t.Context()); err != nil || !lost {
			t.Errorf("Release = %v, want that the hold was released", err)
		}
		if err := d.Lease("job", l.ID(), time.Minute).Release(t.Context()); !errors.Is(err, driver.ErrLost) {
			t.Errorf("release of a hold that has ended = %v, want ErrLost", err)
		}
	})
}

// hang reads a request, so that the server notices if its client goes, and then waits for that.
func hang(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // a client that has gone is noticed below
	<-r.Context().Done()
}

// TestNextReplica asks a replica that can't do what another one may, or that hangs, although the
// client waits for less than a replica may take to answer.
func TestNextReplica(t *testing.T) {
	for _, kind := range []string{wire.ProblemQuota, wire.ProblemAudit, "hung"} {
		synctest.Test(t, func(t *testing.T) {
			d := openThrough(t, memlock.New(), func(h http.Handler, w http.ResponseWriter, r *http.Request) {
				switch isFirst := r.URL.Path == wire.PathAcquire && r.Host == "localhost"; {
				case isFirst && kind == "hung":
					hang(r)
				case isFirst:
					writeProblem(w, wire.NewProblem(kind, "", time.Second))
				default:
					h.ServeHTTP(w, r)
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), driver.AnswerTimeout)
			defer cancel()
			if _, err := d.Acquire(ctx, driver.Request{Name: "job", ID: longID("a"), TTL: time.Minute}); err != nil {
				t.Errorf("Acquire, answered %s by the first replica = %v, want the lock from the second", kind, err)
			}
		})
	}
}

// TestPlaceStaysAtItsReplica waits at a replica that can't do something else. The requests of the
// process go on to the next one, and those that wait do not: a place that they left would be in the
// way of others.
func TestPlaceStaysAtItsReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, asked := memlock.New(), make(chan string, 100)
		held := livetest.Acquire(t, store, driver.Request{Name: "job", ID: "a", TTL: time.Hour})
		d := openThrough(t, store, func(h http.Handler, w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == wire.PathAcquire:
				asked <- r.Host
			case r.URL.Path == wire.PathLock && r.Host == "localhost":
				writeProblem(w, wire.NewProblem(wire.ProblemAudit, "", time.Second))
				return
			}
			h.ServeHTTP(w, r)
		})
		go func() {
			time.Sleep(time.Second) // the acquisition waits by now
			if _, err := d.Status(t.Context(), "job"); err != nil {
				t.Errorf("Status = %v, want the answer of the second replica", err)
			}
			time.Sleep(time.Minute) // some requests that wait
			_ = held.Release(t.Context())
		}()
		if _, err := d.Acquire(t.Context(), driver.Request{Name: "job", ID: longID("b"), TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		close(asked)
		n := 0
		for host := range asked {
			if n++; host != "localhost" {
				t.Errorf("request %d went to %s", n, host)
			}
		}
		if n < 3 {
			t.Errorf("%d requests: nothing was tried", n)
		}
	})
}

// TestReleaseWithoutAnswer gives up a release because another lock was lost. That is no success.
func TestReleaseWithoutAnswer(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	d := openThrough(t, memlock.New(), func(h http.Handler, w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == wire.PathRelease {
			cancel(driver.ErrLost)
			<-r.Context().Done()
		} else {
			h.ServeHTTP(w, r)
		}
	})
	l := livetest.Acquire(t, d, driver.Request{Name: "job", ID: longID("a"), TTL: time.Minute})
	if err := l.Release(ctx); err == nil {
		t.Error("Release without an answer = nil, want an error")
	}
}

// TestAnswerOfProxy lets a proxy answer in place of the service. What does not repeat the id of the
// request is no grant, and a limit of the proxy is over soon.
func TestAnswerOfProxy(t *testing.T) {
	for text, status := range map[string]int{
		`{}`: http.StatusOK, `{"name":"job","id":"` + longID("b") + `.0123456789","token":7,"ttl_ms":60000}`: http.StatusOK,
		`{"error":"slow down"}`: http.StatusTooManyRequests, `{"error":"bad gateway"}`: http.StatusBadGateway,
	} {
		d := openThrough(t, memlock.New(), func(h http.Handler, w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == wire.PathAcquire {
				writeText(w, status, wire.TypeJSON, []byte(text))
			} else {
				h.ServeHTTP(w, r)
			}
		})
		l, err := d.Acquire(t.Context(), driver.Request{Name: "job", ID: longID("a"), TTL: time.Minute})
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Acquire, answered %d %s = %v, %v, want ErrUnavailable alone", status, text, l, err)
		}
	}
}

// TestProxyCutsPolls waits behind a proxy that ends each request after a while, as Envoy does after
// 15 s. That is no outage, however long the lock is held, and although another replica shuts down.
func TestProxyCutsPolls(t *testing.T) {
	for name, cut := range map[string]time.Duration{"2s": 2 * time.Second, "15s": 15 * time.Second, "Draining": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				held := livetest.Acquire(t, store, driver.Request{Name: "job", ID: "a", TTL: time.Hour})
				time.AfterFunc(5*driver.RetryTimeout, func() { _ = held.Release(context.Background()) })
				d := openThrough(t, store, func(h http.Handler, w http.ResponseWriter, r *http.Request) {
					if name == "Draining" && r.Host == "127.0.0.1" {
						writeProblem(w, wire.NewProblem(wire.ProblemDraining, "", 0))
					} else {
						http.TimeoutHandler(h, cut, "").ServeHTTP(w, r)
					}
				})
				l, err := d.Acquire(t.Context(), driver.Request{Name: "job", ID: longID("b"), TTL: time.Minute})
				if err != nil {
					t.Fatalf("Acquire = %v, want the lock after it was released", err)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Errorf("Release = %v", err)
				}
			})
		})
	}
}

// TestAttemptsInOutage counts what an attempt that failed in an outage sends afterwards: nothing if
// no replica took its request, and few withdrawals if one may have executed it.
func TestAttemptsInOutage(t *testing.T) {
	for kind, most := range map[string]int64{
		wire.ProblemDraining: 0, wire.ProblemUnavailable: 10, wire.ProblemRepeated: 10,
	} {
		synctest.Test(t, func(t *testing.T) {
			var withdrawals atomic.Int64
			d := openThrough(t, memlock.New(), func(h http.Handler, w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case wire.PathWithdraw:
					withdrawals.Add(1)
					fallthrough
				case wire.PathAcquire:
					writeProblem(w, wire.NewProblem(kind, "", time.Second))
				default:
					h.ServeHTTP(w, r)
				}
			}, "http://localhost")
			req := driver.Request{Name: "job", ID: longID("a"), TTL: time.Minute}
			if _, err := d.Acquire(t.Context(), req); !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("%s: Acquire = %v, want ErrUnavailable", kind, err)
			}
			time.Sleep(time.Minute)
			if got := withdrawals.Load(); got > most || most > 0 && got == 0 {
				t.Errorf("%s: the attempt was withdrawn by %d requests, want %d at most, and some if that is not 0", kind, got, most)
			}
		})
	}
}

// TestWithdrawalAtClose closes a driver soon after an outage, while its withdrawal waits for the
// next try.
func TestWithdrawalAtClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var isUp, isWithdrawn atomic.Bool
		d := openThrough(t, memlock.New(), func(h http.Handler, w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == wire.PathStore || isUp.Load() {
				isWithdrawn.Store(isWithdrawn.Load() || r.URL.Path == wire.PathWithdraw)
				h.ServeHTTP(w, r)
			} else {
				writeProblem(w, wire.NewProblem(wire.ProblemUnavailable, "", time.Second))
			}
		}, "http://localhost")
		req := driver.Request{Name: "job", ID: longID("a"), TTL: time.Minute}
		if _, err := d.Acquire(t.Context(), req); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("Acquire = %v, want ErrUnavailable", err)
		}
		time.Sleep(5 * time.Second)
		isUp.Store(true)
		if _ = d.Close(); !isWithdrawn.Load() {
			t.Error("Close left the acquisition at the service, which answers again")
		}
	})
}

// TestPollsAfterOutage waits through an outage that the service reports at the end of each request.
// After it, the requests that wait are as long as before.
func TestPollsAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, polls := memlock.New(), atomic.Int64{}
		held := livetest.Acquire(t, store, driver.Request{Name: "job", ID: "a", TTL: time.Hour})
		d := openThrough(t, store, func(h http.Handler, w http.ResponseWriter, r *http.Request) {
			if n := polls.Add(1); r.URL.Path == wire.PathAcquire && n > 3 && n < 8 {
				time.Sleep(10 * time.Second)
				writeProblem(w, wire.NewProblem(wire.ProblemUnavailable, "", time.Second))
			} else {
				h.ServeHTTP(w, r)
			}
		}, "http://localhost")
		time.AfterFunc(5*time.Minute, func() { _ = held.Release(context.Background()) })
		if _, err := d.Acquire(t.Context(), driver.Request{Name: "job", ID: longID("b"), TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if got := polls.Load(); got > 40 {
			t.Errorf("the wait of 5 minutes took %d requests, want about 32", got)
		}
	})
}

// TestOutageOfWaiter ends a wait while the service is down, which had said before that the lock is
// held. The error must say that it is down now.
func TestOutageOfWaiter(t *testing.T) {
	for _, isDown := range []bool{false, true} {
		t.Run(fmt.Sprint("Down=", isDown), func(t *testing.T) {
			store, requests := memlock.New(), atomic.Int64{}
			livetest.Acquire(t, store, driver.Request{Name: "job", ID: "a", TTL: time.Hour})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			d := openThrough(t, store, func(h http.Handler, w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != wire.PathAcquire {
					h.ServeHTTP(w, r)
					return
				}
				switch n := requests.Add(1); {
				case n == 1: // it is queued
					h.ServeHTTP(w, r)
				case n == 2 && isDown:
					w.WriteHeader(http.StatusBadGateway)
				default:
					cancel()
					hang(r)
				}
			}, "http://localhost")
			_, err := d.Acquire(ctx, driver.Request{Name: "job", ID: longID("b"), TTL: time.Hour})
			if !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrUnavailable) != isDown {
				t.Errorf("Acquire = %v, want one that matches ErrUnavailable: %t", err, isDown)
			}
		})
	}
}

// TestWithdrawalFromAll gives an acquisition up that may be known to two replicas, of which one
// hangs. The other one must learn it nevertheless.
func TestWithdrawalFromAll(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	withdrawn := make(chan struct{})
	d := openThrough(t, memlock.New(), func(h http.Handler, w http.ResponseWriter, r *http.Request) {
		switch isFirst := r.Host == "localhost"; {
		case r.URL.Path == wire.PathStore:
			h.ServeHTTP(w, r)
		case r.URL.Path == wire.PathAcquire && isFirst:
			w.WriteHeader(http.StatusBadGateway)
		case r.URL.Path == wire.PathAcquire:
			cancel()
			hang(r)
		case isFirst:
			hang(r)
		default:
			close(withdrawn)
		}
	})
	req := driver.Request{Name: "job", ID: longID("a"), TTL: time.Hour}
	if _, err := d.Acquire(ctx, req); !errors.Is(err, context.Canceled) {
		t.Errorf("Acquire = %v, want that of its context", err)
	}
	select {
	case <-withdrawn:
	case <-time.After(livetest.Patience):
		t.Error("the replica that answers gets no withdrawal")
	}
}

// TestLateWithdrawal loses the answer to an acquisition, and delays its withdrawal until the caller
// acquires the lock again. The withdrawal must end the first hold, and not the second one.
func TestLateWithdrawal(t *testing.T) {
	store, again := new(memlock.Store), make(chan struct{})
	var acquisitions, withdrawals atomic.Int64
	d := openThrough(t, store.Open(), func(h http.Handler, w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == wire.PathAcquire && acquisitions.Add(1) == 1:
			h.ServeHTTP(httptest.NewRecorder(), r)
			writeProblem(w, wire.NewProblem(wire.ProblemUnavailable, "", 0)) // another one would be asked for at once
			return
		case r.URL.Path == wire.PathWithdraw && withdrawals.Add(1) == 1:
			<-again
		}
		h.ServeHTTP(w, r)
	}, "http://localhost")
	req := driver.Request{Name: "job", ID: longID("a"), TTL: time.Hour, NoWait: true}
	if _, err := d.Acquire(t.Context(), req); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("the first Acquire = %v, want ErrUnavailable", err)
	}
	tell := sync.OnceFunc(func() { close(again) })
	req.ID, req.NoWait, req.OnWait = longID("next"), false, func(error) { tell() }
	l := livetest.Acquire(t, d, req)
	if err := d.Close(); err != nil { // after the withdrawal
		t.Fatal(err)
	}
	if st := status(t, store, "job"); len(st.Holders) != 1 || st.Holders[0].Token != l.Grant().Token {
		t.Errorf("the lock is %+v, want the hold with the token %d", st, l.Grant().Token)
	}
}

// TestServiceOverService checks that a service does not begin to serve another one: all requests
// that wait would fail.
func TestServiceOverService(t *testing.T) {
	d := openThrough(t, memlock.New(), http.Handler.ServeHTTP, "http://localhost")
	if _, err := New(d, Options{}); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "another lock service") {
		t.Errorf("New = %v, want ErrInvalid", err)
	}
}

// A foreignStore has holds of another library: one of a lock, and one of what may be no lock.
type foreignStore struct{ *memlock.Driver }

func (foreignStore) List(_ context.Context, _ string, yield func(driver.Status) bool) error {
	yield(driver.Status{Name: "job", Holders: []driver.Holding{{Foreign: "Redisson", ID: "secret"}, {Foreign: "a list"}}})
	return nil
}

// TestForeignHoldsInList lists holds of another library, whose ids a list never shows. A lock still
// differs from what may be none.
func TestForeignHoldsInList(t *testing.T) {
	d := openThrough(t, foreignStore{memlock.New()}, http.Handler.ServeHTTP, "http://localhost")
	err := d.List(t.Context(), "", func(st driver.Status) bool {
		if lock, other := st.Holders[0], st.Holders[1]; !remotelock.IsHidden(lock.ID) || other.ID != "" {
			t.Errorf("holds = %+v, want that the first has a hidden id, and the second none", st.Holders)
		} else if err := d.Break(t.Context(), "job", lock.ID); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Break of a hold with neither id nor token = %v, want ErrInvalid", err)
		}
		return true
	})
	if err != nil {
		t.Error(err)
	}
}

// noWindow is a frame of settings in which INITIAL_WINDOW_SIZE is 0.
const noWindow = "\x00\x00\x06\x04\x00\x00\x00\x00\x00" + "\x00\x04\x00\x00\x00\x00"

// requestWithoutWindow sends a request over HTTP/2 whose answer may have no bytes.
func requestWithoutWindow(conn net.Conn) error {
	header := "\x82\x86" + "\x04\x13/console/console.js" + "\x01\x09localhost" // GET and http are in HPACK's table
	headers := "\x00\x00" + string(rune(len(header))) + "\x01\x05\x00\x00\x00\x01" + header
	_, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+noWindow+headers)
	return err
}

// readFrame returns the type of the next frame.
func readFrame(r *bufio.Reader) (kind byte, err error) {
	var head [9]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, err
	}
	_, err = r.Discard(int(binary.BigEndian.Uint32(head[:4]) >> 8))
	return head[3], err
}
