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
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
)

const (
	// probeTimeout bounds the search for the reason why etcd can't be reached. It leaves a busy
	// machine time for a handshake with TLS.
	probeTimeout = callTimeout

	// diagnosisTimeout bounds the ping after a call that got no answer.
	diagnosisTimeout = 250 * time.Millisecond
)

// A reachError says why etcd can't be reached.
type reachError struct {
	endpoints []string
	reason    string
	permanent bool // it does not pass by itself
	noAnswer  bool // there was no answer in time; another member may answer
	err       error
}

func (e *reachError) Error() string {
	var hosts []string
	for _, endpoint := range e.endpoints {
		// An endpoint may contain a password.
		hosts = append(hosts, endpoint[strings.LastIndexByte(endpoint, '@')+1:])
	}
	return fmt.Sprintf("etcd at %s: %s", strings.Join(hosts, ", "), e.reason)
}

func (e *reachError) Unwrap() error { return e.err }

// Ping returns nil, or why etcd can't be reached. It needs neither a user nor a majority.
func (d *Driver) Ping(ctx context.Context) error {
	if err := d.life.Ready(ctx); err != nil {
		return err
	}
	ctx, cancel := d.life.During(ctx)
	defer cancel()
	return explain(d.ping(ctx, callTimeout))
}

// ping is Ping with a timeout.
func (d *Driver) ping(ctx context.Context, timeout time.Duration) error {
	inner, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// Unlike the client's own calls, this one is not repeated: it returns with the reason why
	// there is no connection.
	_, err := etcdserverpb.NewKVClient(d.client.ActiveConnection()).Range(inner, &etcdserverpb.RangeRequest{
		Key: []byte{0}, Serializable: true, KeysOnly: true,
	})
	switch code := codeOf(err); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case code != codes.Unavailable && code != codes.DeadlineExceeded:
		return nil
	case inner.Err() != nil && strings.Contains(err.Error(), "ready"):
		return d.noAnswerError(fmt.Sprintf("it accepts connections, but did not answer within %v", timeout))
	case inner.Err() != nil:
		return d.noAnswerError(fmt.Sprintf("no answer within %v", timeout))
	}
	return d.unreachableError(ctx, err)
}

// noAnswerError returns the error of a call that got no answer in time.
func (d *Driver) noAnswerError(reason string) error {
	return &reachError{endpoints: d.client.Endpoints(), reason: reason, noAnswer: true}
}

// diagnoseNoAnswer returns the likely reason why a call got no answer within callTimeout. It
// sends no request where there is a connection. The client uses its members in turn, so an
// extra request between two calls could send every second call to a member that hangs, for
// ever.
func (d *Driver) diagnoseNoAnswer(ctx context.Context) error {
	if d.client.ActiveConnection().GetState() != connectivity.Ready {
		if r, ok := errors.AsType[*reachError](d.ping(ctx, diagnosisTimeout)); ok {
			return r
		}
	}
	return d.noAnswerError(fmt.Sprintf("no answer within %v: etcd hangs, or has no majority of its members", callTimeout))
}

// unreachableError explains why there is no connection. err is the error of a call that was not
// repeated.
func (d *Driver) unreachableError(ctx context.Context, err error) error {
	if _, ok := errors.AsType[rpctypes.EtcdError](rpctypes.Error(err)); ok {
		return rpctypes.Error(err) // a member said so
	}
	r := &reachError{endpoints: d.client.Endpoints(), reason: err.Error(), err: err}
	if strings.Contains(r.reason, syscall.ECONNREFUSED.Error()) { // gRPC keeps only the text
		r.err = errors.Join(err, syscall.ECONNREFUSED)
	}
	if _, after, ok := strings.Cut(r.reason, connectionError); ok {
		r.reason = strings.TrimPrefix(strings.TrimPrefix(strings.Trim(after, `"`), "transport: "), "Error while dialing: ")
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	switch {
	case strings.Contains(r.reason, "no such host"):
		r.permanent = d.everyEndpoint(func(host string) bool {
			name, _, _ := net.SplitHostPort(host)
			_, err := net.DefaultResolver.LookupHost(ctx, name)
			dns, ok := errors.AsType[*net.DNSError](err)
			return ok && dns.IsNotFound
		})
	case strings.Contains(r.reason, "tls: ") || strings.Contains(r.reason, "x509: "):
		r.permanent = true
	case strings.Contains(r.reason, "handshake failed") &&
		d.everyEndpoint(func(host string) bool { return speaks(ctx, host, false) }):
		r.reason, r.permanent = "the server does not use TLS, and the client does: "+r.reason, true
	case strings.Contains(r.reason, "server preface") &&
		d.everyEndpoint(func(host string) bool { return speaks(ctx, host, true) }):
		r.reason, r.permanent = "the server requires TLS, and the client does not use it: "+r.reason, true
	}
	return r
}

// connectionError begins gRPC's message for a connection that failed.
const connectionError = "connection error: desc = "

// everyEndpoint reports whether match is true for all endpoints, each a host:port.
func (d *Driver) everyEndpoint(match func(host string) bool) bool {
	for _, endpoint := range d.client.Endpoints() {
		host := endpoint
		if u, err := url.Parse(endpoint); err == nil && u.Host != "" {
			host = u.Host
		}
		if !match(host) {
			return false
		}
	}
	return true
}

// speaks reports whether a server answers, with TLS or without. It sends no secrets to the
// server, and does not rely on anything else that it says.
func speaks(ctx context.Context, host string, secure bool) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
	if err != nil {
		return false
	}
	defer conn.Close() //nolint:errcheck // it has answered, or not
	if until, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(until) // without a deadline, the server's own timeout ends it
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
