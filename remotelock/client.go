package remotelock

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock/wire"
)

// maxAnswer is the greatest size of an answer that is not a list.
const maxAnswer = 8 << 20

// A client sends requests to the replicas of a service. It is safe for concurrent use.
type client struct {
	http    *http.Client
	servers []string // base URLs, without a slash at the end
	token   string
	store   string       // the ID of the store that all requests are for; "": unknown
	current atomic.Int64 // the server that is asked first
}

func newClient(servers []string, token string, t *http.Transport) *client {
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // the service has none
	return &client{http: &http.Client{Transport: t, CheckRedirect: noRedirect}, servers: servers, token: token}
}

// errNoAnswer is the cause of the end of a context that bounds the wait for an answer.
const errNoAnswer driver.Sentinel = "the lock service does not answer"

// An attemptError is a failure of a request that another server may not have.
type attemptError struct {
	err error
	// sent says that the service may have executed the request.
	sent bool
}

func (e *attemptError) Error() string { return e.err.Error() }
func (e *attemptError) Unwrap() error { return e.err }

// isBroken reports whether the replica of a request has ended, so that its address may lead to
// another one, or to a new connection: net/http does not repeat a POST over one that is dead.
func (e *attemptError) isBroken() bool {
	var p *wire.Problem
	if errors.As(e.err, &p) {
		return p.Kind() == wire.ProblemDraining
	}
	return e.sent && !errors.Is(e.err, errNoAnswer)
}

// mayBeDone reports whether the service may have executed a request although it got no answer.
func mayBeDone(err error) bool {
	var failed *attemptError
	return errors.As(err, &failed) && failed.sent
}

// do calls send for one server after the other until one answers. A single one is asked again if
// its connection broke.
func (c *client) do(ctx context.Context, send func(ctx context.Context, server int) error) error {
	return c.doFrom(ctx, &c.current, 0, send)
}

// doFrom is do for requests that go on with the server where they left off. One that waits is
// repeated by its caller.
func (c *client) doFrom(ctx context.Context, current *atomic.Int64, wait time.Duration,
	send func(ctx context.Context, server int) error) error {
	first := current.Load()
	goOn := func(with int64) {
		current.CompareAndSwap(first, with)
		c.current.CompareAndSwap(first, with)
	}
	var errs []error
	for i := range max(2, len(c.servers)) {
		server := (int(first) + i) % len(c.servers)
		err := c.doOne(ctx, server, wait, len(c.servers)-i, send)
		var failed *attemptError
		if !errors.As(err, &failed) {
			goOn(int64(server))
			return err
		}
		errs = append(errs, failed.err)
		if ctx.Err() != nil || i+1 >= len(c.servers) && (wait > 0 || !failed.isBroken()) {
			break
		}
	}
	err := withoutContexts(errors.Join(errs...))
	if slices.ContainsFunc(errs, func(err error) bool { return !isMismatched(err) }) {
		err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	// The next request begins with another server: this one was slow, or refused.
	goOn((first + 1) % int64(len(c.servers)))
	return err
}

// isMismatched reports whether a server showed a certificate that was refused, or speaks no TLS,
// which no retry mends.
func isMismatched(err error) bool {
	return errors.As(err, new(*tls.CertificateVerificationError)) || errors.Is(err, http.ErrSchemeMismatch)
}

// doOne sends a request to one server. If others are left, it leaves them a part of the time.
func (c *client) doOne(ctx context.Context, server int, wait time.Duration, left int,
	send func(context.Context, int) error) error {
	limit := wait + driver.AnswerTimeout
	if end, ok := ctx.Deadline(); ok && left > 1 {
		limit = min(limit, wait+time.Until(end)/time.Duration(left))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer)
	defer cancel()
	return send(ctx, server)
}

// withoutContexts hides contexts in an error: those are of requests, and not of the caller.
func withoutContexts(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return errNoAnswer
	}
	return err
}

// post sends one message to one server, and decodes the answer. It returns the status.
func (c *client) post(ctx context.Context, server int, path string, message, answer any) (status int, _ error) {
	body, err := json.Marshal(message)
	if err != nil {
		return 0, err
	}
	return c.send(ctx, server, http.MethodPost, path, body, answer)
}

// get asks the first server that answers.
func (c *client) get(ctx context.Context, path string, query url.Values, answer any) error {
	return c.do(ctx, func(ctx context.Context, server int) error {
		_, err := c.send(ctx, server, http.MethodGet, path+"?"+query.Encode(), nil, answer)
		return err
	})
}

// open sends a request, and returns the response with a status below 300. Other answers become
// errors.
func (c *client) open(ctx context.Context, server int, method, path string, body []byte,
	accept string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.servers[server]+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", wire.TypeJSON)
	}
	req.Header.Set("Accept", accept)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.store != "" {
		req.Header.Set(wire.HeaderStore, c.store)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, &attemptError{err: explain(ctx, err), sent: !isRefused(err)}
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer closeBody(resp.Body)
	return nil, c.problem(ctx, resp)
}

// explain returns an error of the HTTP client without the URL, which its caller knows.
func explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// isRefused reports whether a request was certainly not sent.
func isRefused(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// problem returns the error of a response that reports one.
func (c *client) problem(ctx context.Context, resp *http.Response) error {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // without one, it is no problem
	var p wire.Problem
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return &attemptError{err: explain(ctx, err), sent: true}
	}
	if kind != wire.TypeProblem || json.Unmarshal(text, &p) != nil || p.Kind() == "" {
		err := fmt.Errorf("%s answers %s, which is no answer of a lock service", resp.Request.URL.Host, resp.Status)
		switch isLimited := resp.StatusCode == http.StatusTooManyRequests; { // by a proxy between us and the service
		case isLimited, resp.StatusCode >= 500:
			return &attemptError{err: err, sent: !isLimited}
		}
		return driver.Invalidf("server: %w", err)
	}
	switch p.Kind() {
	case wire.ProblemDraining, wire.ProblemOtherStore, wire.ProblemQuota, wire.ProblemAudit:
		return &attemptError{err: &p}
	case wire.ProblemUnavailable, wire.ProblemFull, wire.ProblemInternal, wire.ProblemRepeated:
		return &attemptError{err: &p, sent: true}
	}
	return errorOf(&p)
}

// errorOf returns the error of the contract that a problem stands for.
func errorOf(p *wire.Problem) error {
	switch p.Kind() {
	case wire.ProblemHeld:
		return driver.ErrHeld
	case wire.ProblemLost:
		return driver.ErrLost
	case wire.ProblemKind:
		return fmt.Errorf("%w: the lock service says: %s", driver.ErrKind, p.Detail)
	case wire.ProblemInvalid, wire.ProblemTooLarge:
		return driver.Invalidf("request: the lock service says: %s", p.Detail)
	case wire.ProblemUnavailable, wire.ProblemFull, wire.ProblemGrace, wire.ProblemInternal, wire.ProblemDraining:
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, p)
	}
	return p
}

// send sends a request and decodes its answer.
func (c *client) send(ctx context.Context, server int, method, path string, body []byte,
	answer any) (status int, _ error) {
	resp, err := c.open(ctx, server, method, path, body, wire.TypeJSON+", "+wire.TypeProblem)
	if err != nil {
		return 0, err
	}
	defer closeBody(resp.Body)
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, &attemptError{err: explain(ctx, err), sent: true}
	}
	if resp.StatusCode == http.StatusNoContent {
		return resp.StatusCode, nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return 0, driver.Invalidf("server: %s: this is no answer of a lock service: %w", resp.Request.URL.Host, err)
	}
	return resp.StatusCode, nil
}

// closeBody lets the connection be used again.
func closeBody(body io.ReadCloser) {
	_, _ = io.Copy(io.Discard, io.LimitReader(body, 1<<16)) // otherwise it is closed
	_ = body.Close()
}
