package fence_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/fence"
)

// newServer starts a server for what the lock "account/42" guards.
func newServer(t *testing.T, s fence.Server, next http.HandlerFunc) *httptest.Server {
	t.Helper()
	if s.Lock == nil {
		s.Lock = func(*http.Request) string { return "account/42" }
	}
	s.Guard = new(fence.Memory)
	srv := httptest.NewServer(s.Wrap(next))
	t.Cleanup(srv.Close)
	return srv
}

// put sends a request with a mark, and returns the status and the body of the answer, or the error.
func put(t *testing.T, url string, m fence.Mark, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(fence.Header, m.Header())
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body) // the answer is for the log
	return res.StatusCode, string(text)
}

// putSoon sends a request until it is let in: another one may be in, and it may be slow itself.
func putSoon(t *testing.T, url string, m fence.Mark, body string) {
	t.Helper()
	for began := time.Now(); ; {
		status, text := put(t, url, m, body)
		tooSlow := status == 0 || status == http.StatusRequestTimeout || status == http.StatusServiceUnavailable
		if status == http.StatusOK {
			return
		} else if !tooSlow || time.Since(began) > time.Minute {
			t.Fatalf("the next holder is answered %d %s", status, text)
		}
	}
}

// beginRequest sends the beginning of a request over a connection of its own.
func beginRequest(t *testing.T, srv *httptest.Server, m fence.Mark, length int) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	sendHeader(conn, m, length)
	return conn
}

// sendHeader sends the header of a request.
func sendHeader(conn net.Conn, m fence.Mark, length int) {
	_, _ = fmt.Fprintf(conn, "PUT / HTTP/1.1\r\nHost: x\r\n%s: %s\r\nContent-Length: %d\r\n\r\n", fence.Header, m.Header(),
		length)
}

// A holder that sends its body byte by byte, or never, does not keep the next holder out, and
// is told that it was too slow.
func TestSlowBody(t *testing.T) {
	bodies := make(chan string, 10)
	srv := newServer(t, fence.Server{Timeout: 500 * time.Millisecond}, func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		bodies <- fmt.Sprint(string(body), err)
	})
	conn := beginRequest(t, srv, mark(t, 7, "slow"), 100)
	_, _ = io.WriteString(conn, "a")
	putSoon(t, srv.URL, mark(t, 8, "next"), "whole")
	if got := <-bodies; got != "whole<nil>" {
		t.Errorf("the handler read %q", got)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("the slow holder is not answered: %v", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusRequestTimeout {
		t.Errorf("the slow holder is answered %s, want 408", res.Status)
	}
	if _, err := conn.Read(make([]byte, 1000)); err == nil { // the rest of the answer
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err = io.Copy(io.Discard, conn); errors.As(err, new(net.Error)) {
			t.Errorf("the connection of the slow holder stays open: %v", err)
		}
	}
}

// A body longer than MaxBody claims nothing.
func TestLongBody(t *testing.T) {
	srv := newServer(t, fence.Server{MaxBody: 10}, func(http.ResponseWriter, *http.Request) {})
	if status, text := put(t, srv.URL, mark(t, 8, "long"),
		strings.Repeat("x", 11)); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body of 11 bytes is answered %d %s, want 413", status, text)
	}
	if status, text := put(t, srv.URL, mark(t, 7, "short"), strings.Repeat("x", 10)); status != http.StatusOK {
		t.Errorf("a body of 10 bytes is answered %d %s", status, text)
	}
}

// A handler that writes to a client that does not read, or waits, ends within Timeout.
func TestSlowHandlers(t *testing.T) {
	tests := []struct {
		name string
		next http.HandlerFunc
	}{
		{"Writes", func(w http.ResponseWriter, _ *http.Request) {
			for chunk := make([]byte, 1<<16); ; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}},
		{"Waits", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			entered := make(chan struct{}, 2)
			slow := mark(t, 7, "slow")
			srv := newServer(t, fence.Server{Timeout: 500 * time.Millisecond},
				func(w http.ResponseWriter, r *http.Request) {
					if m, _ := fence.FromContext(r.Context()); m == slow {
						entered <- struct{}{}
						tt.next(w, r)
					}
				})
			beginRequest(t, srv, slow, 0)
			<-entered
			putSoon(t, srv.URL, mark(t, 8, "next"), "")
		})
	}
}

// Each request has its own timeout, also on a reused connection, and the time for the body does
// not count as time of the handler.
func TestTimeoutOfEachRequest(t *testing.T) {
	t.Parallel()
	var err error
	for timeout := 400 * time.Millisecond; timeout < 30*time.Second; timeout *= 2 { // a busy machine needs more
		if err = reuseConnection(t, timeout); err == nil {
			return
		}
	}
	t.Error(err)
}

// reuseConnection sends a request that takes nearly all its time, and then another one.
func reuseConnection(t *testing.T, timeout time.Duration) error {
	t.Helper()
	srv := newServer(t, fence.Server{Timeout: timeout}, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
			http.Error(w, "the timeout is over", http.StatusGatewayTimeout)
		// This goes past the timeout if counted from the beginning of the request.
		case <-time.After(timeout * 3 / 4):
		}
	})
	conn := beginRequest(t, srv, mark(t, 7, "a"), 1)
	answers := bufio.NewReader(conn)
	time.Sleep(timeout / 2) // of the time for the body
	_, _ = io.WriteString(conn, "a")
	for _, want := range []int{http.StatusOK, http.StatusPreconditionRequired} {
		res, err := http.ReadResponse(answers, nil)
		if err != nil {
			return fmt.Errorf("no answer on a connection that is used again: %w", err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			return fmt.Errorf("with a timeout of %v, answered %s, want %d", timeout, res.Status, want)
		}
		if want == http.StatusOK {
			_, _ = io.Copy(io.Discard, res.Body)
			time.Sleep(timeout)                                              // until all timeouts of the request are over
			_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n") // without a mark
		}
	}
	return nil
}

// One wild token does not close the resource. The client is not told which lock guards it; the
// log is.
func TestWildToken(t *testing.T) {
	var log strings.Builder
	srv := newServer(t, fence.Server{MaxToken: fence.ClockToken, Log: slog.New(slog.NewTextHandler(&log, nil))},
		func(http.ResponseWriter, *http.Request) {})
	now := uint64(time.Now().UnixMicro())
	for _, token := range []uint64{1<<63 - 1, 1 << 53, now + uint64((26 * time.Hour).Microseconds())} {
		if status, text := put(t, srv.URL, mark(t, token, "wild"), ""); status != http.StatusBadRequest ||
			strings.Contains(text, "account") {
			t.Errorf("token %d is answered %d %s, want 400 without the name", token, status, text)
		}
	}
	elsewhere := fence.Mark{Lock: "guess", Token: 1, Owner: mark(t, 1, "a").Owner}
	if status, text := put(t, srv.URL, elsewhere, ""); status != http.StatusBadRequest ||
		strings.Contains(text, "account") {
		t.Errorf("the mark of another lock is answered %d %s, want 400 without the name", status, text)
	}
	if status, text := put(t, srv.URL, mark(t, now, "real"), ""); status != http.StatusOK {
		t.Errorf("a real hold after wild tokens is answered %d %s", status, text)
	}
	if status, text := put(t, srv.URL, mark(t, now-1, "stale"), ""); status != http.StatusConflict ||
		strings.Contains(text, "account") {
		t.Errorf("a stale hold is answered %d %s, want 409 without the name", status, text)
	}
	if got := strings.Count(log.String(), "account/42"); got < 4 {
		t.Errorf("logged %s; want the lock in each line", log.String())
	}
}

// Without MaxToken, the tokens of backends without a clock are let in: revisions of etcd and
// zxids of ZooKeeper.
func TestTokensWithoutClock(t *testing.T) {
	srv := newServer(t, fence.Server{}, func(http.ResponseWriter, *http.Request) {})
	for _, token := range []uint64{3 << 16, 7<<42 | 12, 1 << 39 << 16, 1 << 13 << 42} {
		if status, text := put(t, srv.URL, mark(t, token, "a"), ""); status != http.StatusOK {
			t.Errorf("token %d is answered %d %s", token, status, text)
		}
	}
}

// A resource that does not exist has no lock, and leaves no mark.
func TestNoResource(t *testing.T) {
	none := func(*http.Request) string { return "" }
	srv := newServer(t, fence.Server{Lock: none}, func(http.ResponseWriter, *http.Request) { t.Error("let through") })
	if status, text := put(t, srv.URL, mark(t, 7, "a"), ""); status != http.StatusNotFound {
		t.Errorf("answered %d %s, want 404", status, text)
	}
}

// The mark goes to the host of the first request, and not to hosts to which that one redirects.
func TestRedirect(t *testing.T) {
	seen := make(map[string]string)
	record := func(name string) http.HandlerFunc {
		return func(_ http.ResponseWriter, r *http.Request) { seen[name] = r.Header.Get(fence.Header) }
	}
	other := httptest.NewServer(record("other"))
	defer other.Close()
	var mux http.ServeMux
	first := httptest.NewServer(&mux)
	defer first.Close()
	mux.Handle("/away", http.RedirectHandler("/further", http.StatusTemporaryRedirect))
	mux.Handle("/further", http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	mux.Handle("/near", http.RedirectHandler("/here", http.StatusTemporaryRedirect))
	mux.HandleFunc("/here", record("here"))
	h := hold{"account/42", 7, "a"}
	client := http.Client{Transport: fence.Transport{Hold: h}}
	for _, path := range []string{"/away", "/near"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, first.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(fence.Header, "set by the caller")
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	if got, ok := seen["other"]; !ok || got != "" {
		t.Errorf("another host was sent %q, %v; want a request without a mark", got, ok)
	}
	if got, want := seen["here"], mark(t, 7, "a").Header(); got != want {
		t.Errorf("the same host was sent %q, want %q", got, want)
	}
}
