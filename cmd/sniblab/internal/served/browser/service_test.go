package browser

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/remotelock"
	"github.com/sniblock/snib/remotelock/wire"
	"github.com/sniblock/snib/serve"
	"github.com/sniblock/snib/serve/access"
)

// A service is a lock service on a port, whose server can be stopped and started again.
type service struct {
	*serve.Service
	t      *testing.T
	addr   string
	server *http.Server
}

// startService starts a service over a driver, which it closes in the end; nil means a new store
// in memory. The service looks for events often, so that nobody waits long for what a page shows.
func startService(t *testing.T, d driver.Driver, rules *access.Access) *service {
	t.Helper()
	if d == nil {
		d = memlock.New()
	}
	opts := serve.Options{Doctor: someFindings, Leaks: someLeaks}
	if rules != nil {
		opts.Access, opts.Audit = rules, rules.Recent
	}
	s, err := serve.New(d, opts)
	if err != nil {
		t.Fatal(err)
	}
	svc := &service{Service: s, t: t, addr: "127.0.0.1:0"}
	svc.start()
	t.Cleanup(func() {
		svc.stop()
		_ = s.Drain(t.Context()) // nobody listens any more
		_ = d.Close()
	})
	return svc
}

// someFindings stands for what the command finds.
func someFindings(context.Context) ([]wire.Finding, error) {
	return []wire.Finding{
		{Check: "version", Verdict: "ok", Value: "8.2.1"},
		{Check: "maxmemory-policy", Verdict: "unmet", Value: "allkeys-lru: the server may evict locks", Advice: "set maxmemory-policy noeviction"},
		{Check: "clock", Verdict: "note", Value: "0.4 s ahead of this host"},
	}, nil
}

// someLeaks stands for what the command finds.
func someLeaks(context.Context) ([]wire.Leak, error) {
	return []wire.Leak{
		{Kind: "distant", Name: "deploy", Problem: "held by build-7 pid 42; its lease ends in 12 years, which nobody can have meant"},
		{Kind: "foreign", Name: "cron:<b>nightly</b>", Problem: "a string without an end", Library: "SET NX", Unsure: true},
	}, nil
}

// start starts the server, at the address that it had before.
func (s *service) start() {
	s.t.Helper()
	listener, err := net.Listen("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr, s.server = listener.Addr().String(), s.NewServer()
	go func(server *http.Server) { _ = server.Serve(listener) }(s.server) // until it is stopped
}

// stop cuts all connections.
func (s *service) stop() { _ = s.server.Close() }

// url returns the address of the console.
func (s *service) url() string { return "http://" + s.addr + "/" }

// post sends a message in JSON, as curl does, and decodes the answer if there should be one.
func (s *service) post(path, body string, answer any) {
	s.t.Helper()
	resp, err := http.Post("http://"+s.addr+path, wire.TypeJSON, strings.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		s.t.Errorf("%s %s: %s", path, body, resp.Status)
	} else if answer != nil {
		if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
			s.t.Error(err)
		}
	}
}

// ttl is that of all holds here. They are released, not left to end.
const ttl = time.Hour

// A client is a process that takes locks, through a service or in its store.
type client struct {
	t      *testing.T
	d      driver.Driver
	holder driver.Holder
}

// client returns a client with a name, which is that of its host.
func (s *service) client(host string) client {
	s.t.Helper()
	d, err := remotelock.Open(s.t.Context(), remotelock.Config{Servers: []string{"http://" + s.addr}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = d.Close() })
	return client{s.t, d, driver.Holder{Host: host, PID: 42, Label: "job of " + host}}
}

func (c client) request(name string) driver.Request {
	return driver.Request{Name: name, ID: rand.Text(), TTL: ttl, NoWait: true, Holder: c.holder}
}

// hold takes a lock.
func (c client) hold(name string) driver.Lease {
	c.t.Helper()
	l, err := c.d.Acquire(c.t.Context(), c.request(name))
	if err != nil {
		c.t.Fatal(err)
	}
	return l
}

// queue waits for a lock in the background. The lease comes when it is granted.
func (c client) queue(name string) <-chan driver.Lease {
	c.t.Helper()
	granted, failed, waits := make(chan driver.Lease, 1), make(chan error, 1), make(chan bool, 1)
	req := c.request(name)
	req.NoWait = false
	req.OnWait = func(error) {
		select {
		case waits <- true:
		default:
		}
	}
	go func() {
		l, err := c.d.Acquire(c.t.Context(), req)
		if err != nil {
			failed <- err
			return
		}
		granted <- l
	}()
	select {
	case <-waits:
	case err := <-failed:
		c.t.Fatal(err)
	}
	return granted
}

// free releases a hold.
func free(t *testing.T, l driver.Lease) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}
