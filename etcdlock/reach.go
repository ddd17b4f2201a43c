package etcdlock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
)

// probing bounds a look at what keeps us from etcd.
const probing = 500 * time.Millisecond

// A reachError says why etcd can't be reached.
type reachError struct {
	asked     []string
	why       string
	permanent bool // it does not pass by itself
	silent    bool // there was no answer in time: another member may give one
	err       error
}

func (e *reachError) Error() string {
	var hosts []string
	for _, endpoint := range e.asked {
		hosts = append(hosts, endpoint[strings.LastIndexByte(endpoint, '@')+1:]) // in case that there is a password
	}
	return fmt.Sprintf("etcd at %s: %s", strings.Join(hosts, ", "), e.why)
}

func (e *reachError) Unwrap() error { return e.err }

// Ping reports why etcd can't be reached, or nil. It asks nothing that takes a user or a majority.
func (d *Driver) Ping(ctx context.Context) error {
	if err := d.life.Ready(ctx, d.conf.err); err != nil {
		return err
	}
	ctx, cancel := d.life.During(ctx)
	defer cancel()
	return explain(d.ping(ctx, longest))
}

// ping is Ping for at most so long.
func (d *Driver) ping(ctx context.Context, most time.Duration) error {
	inner, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	// This call, unlike those of the client, is not repeated: it returns why there is no
	// connection.
	_, err := etcdserverpb.NewKVClient(d.client.ActiveConnection()).Range(inner, &etcdserverpb.RangeRequest{
		Key: []byte{0}, Serializable: true, KeysOnly: true,
	})
	switch code := codeOf(err); {
	case err == nil, code != codes.Unavailable && code != codes.DeadlineExceeded:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case inner.Err() != nil && strings.Contains(err.Error(), "ready"):
		return d.silence(fmt.Sprintf("it accepts connections and answers nobody within %v", most))
	case inner.Err() != nil:
		return d.silence(fmt.Sprintf("no answer within %v", most))
	}
	return d.unreachable(ctx, err)
}

// silence is the error of a call that got no answer in time.
func (d *Driver) silence(why string) error {
	return &reachError{asked: d.client.Endpoints(), why: why, silent: true}
}

// unanswered says what may be the reason that a call got no answer for the longest time that one
// may take. It does not ask where there is a connection: the client asks its members in turn, and a
// question between two calls can send each second call to the member that hangs, for ever.
func (d *Driver) unanswered(ctx context.Context) error {
	if d.client.ActiveConnection().GetState() != connectivity.Ready {
		if r, ok := errors.AsType[*reachError](d.ping(ctx, probing/2)); ok {
			return r
		}
	}
	return d.silence(fmt.Sprintf("no answer within %v: it hangs, or there is no majority of its members", longest))
}

// unreachable says in words why a connection could not be had, of which a call that was not
// repeated tells by err.
func (d *Driver) unreachable(ctx context.Context, err error) error {
	if _, ok := errors.AsType[rpctypes.EtcdError](rpctypes.Error(err)); ok {
		return rpctypes.Error(err) // a member said so
	}
	r := &reachError{asked: d.client.Endpoints(), why: err.Error(), err: err}
	if _, after, ok := strings.Cut(r.why, connectionError); ok {
		r.why = strings.TrimPrefix(strings.TrimPrefix(strings.Trim(after, `"`), "transport: "), "Error while dialing: ")
	}
	ctx, cancel := context.WithTimeout(ctx, probing)
	defer cancel()
	switch {
	case strings.Contains(r.why, "no such host"):
		r.permanent = d.everyEndpoint(func(host string, _ bool) bool {
			name, _, _ := net.SplitHostPort(host)
			_, err := net.DefaultResolver.LookupHost(ctx, name)
			dns, ok := errors.AsType[*net.DNSError](err)
			return ok && dns.IsNotFound
		})
	case strings.Contains(r.why, "tls: ") || strings.Contains(r.why, "x509: "):
		r.permanent = true
	case strings.Contains(r.why, "handshake failed") && d.everyEndpoint(func(host string, _ bool) bool { return speaks(ctx, host, false) }):
		r.why, r.permanent = "it speaks no TLS, and we do: "+r.why, true
	case strings.Contains(r.why, "server preface") && d.everyEndpoint(func(host string, _ bool) bool { return speaks(ctx, host, true) }):
		r.why, r.permanent = "it wants TLS, and we don't speak it: "+r.why, true
	case strings.Contains(r.why, "http2: "):
		r.why, r.permanent = "another service listens there: "+r.why, true
	}
	return r
}

// connectionError begins what gRPC says of a connection that could not be had.
const connectionError = "connection error: desc = "

// everyEndpoint reports whether something is so of all endpoints, each a host:port.
func (d *Driver) everyEndpoint(is func(host string, secure bool) bool) bool {
	for _, endpoint := range d.client.Endpoints() {
		host, secure := endpoint, false
		if u, err := url.Parse(endpoint); err == nil && u.Host != "" {
			host, secure = u.Host, u.Scheme == "https"
		}
		if !is(host, secure) {
			return false
		}
	}
	return true
}

// speaks reports whether a server answers, with TLS or without. It is told nothing, and not
// believed anything else.
func speaks(ctx context.Context, host string, secure bool) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
	if err != nil {
		return false
	}
	defer conn.Close() //nolint:errcheck // it has answered, or not
	if until, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(until) // without one, the server's patience ends it
	}
	if secure {
		err := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) //nolint:gosec // see above
		alert, ok := errors.AsType[*net.OpError](err)
		return err == nil || ok && alert.Op == "remote error" // it refuses us, in TLS
	}
	if _, err := io.WriteString(conn, "GET /health HTTP/1.0\r\n\r\n"); err != nil {
		return false
	}
	answer := make([]byte, 4)
	_, err = io.ReadFull(conn, answer)
	return err == nil && string(answer) == "HTTP"
}
