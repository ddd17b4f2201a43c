package remotelock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock/wire"
)

var (
	_ driver.Driver = (*Driver)(nil)
	_ driver.Lease  = (*lease)(nil)
)

// A Config says where the service is, and how to speak to it.
type Config struct {
	// Servers are the addresses of the replicas, such as "http://10.0.0.7:7420". The driver stays
	// with one as long as it answers.
	Servers []string

	// Token is sent to the service, if it is not empty: "Authorization: Bearer Token".
	Token string

	// TLS is the configuration for https. Nil means that of the system.
	TLS *tls.Config

	// Dial makes connections. Nil means plain TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// A Driver acquires leases in a lock service. It is safe for concurrent use.
type Driver struct {
	client  *client
	waiting *client // for acquisitions that wait; its current server is not used
	info    driver.Info
	backend string // behind the service
	maxWait time.Duration

	ctx    context.Context // of all requests; ends with Close
	cancel context.CancelCauseFunc

	mu      sync.Mutex     // from a look at ctx until working counts the call
	working sync.WaitGroup // calls, and withdrawals in the background
}

// Open returns a driver for a service. It asks the service once what its store promises. If the
// service can't be reached, the error matches [driver.ErrUnavailable].
func Open(ctx context.Context, conf Config) (*Driver, error) {
	d, err := newDriver(conf)
	if err != nil {
		return nil, err
	}
	var store wire.Store
	if err = d.client.get(ctx, wire.PathStore, nil, &store); err == nil {
		d.info, err = infoOf(&store)
	}
	if err != nil {
		d.closeConnections()
		return nil, err
	}
	d.backend, d.client.store, d.waiting.store = store.Backend, store.ID, store.ID
	d.maxWait = min(wire.Duration(store.MaxWait), pollTimeout)
	return d, nil
}

func newDriver(conf Config) (*Driver, error) {
	if len(conf.Servers) == 0 {
		return nil, driver.Invalidf("remotelock.Config: it has no Servers")
	}
	var servers []string
	for _, server := range conf.Servers {
		u, err := url.Parse(server)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" ||
			u.Fragment != "" {
			return nil, driver.Invalidf("remotelock.Config: an address of a server is not of the form http://HOST:PORT")
		}
		servers = append(servers, strings.TrimSuffix(u.String(), "/"))
	}
	d := &Driver{
		client:  newClient(servers, conf.Token, newTransport(conf)),
		waiting: newClient(servers, conf.Token, newSharedTransport(conf)),
	}
	d.ctx, d.cancel = context.WithCancelCause(context.Background())
	return d, nil
}

const (
	// dialTimeout bounds how long a connection is being made: a dead server must not use up the
	// time that another one needs.
	dialTimeout = 2 * time.Second

	// pingInterval is how long a shared connection is silent before the driver asks the server for
	// a sign of life.
	pingInterval = 2 * time.Second

	// pollTimeout is how long a request that waits stays open: less than the 15 s after which some
	// proxies end it.
	pollTimeout = 10 * time.Second
)

// newTransport returns a transport that gives each open request a connection to itself. So a
// renewal waits neither behind other requests, nor for a connection that hangs because of them.
func newTransport(conf Config) *http.Transport {
	dial := conf.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext
	}
	t := &http.Transport{
		DialContext: dial, TLSClientConfig: conf.TLS.Clone(), TLSHandshakeTimeout: dialTimeout,
		Protocols:    new(http.Protocols),
		MaxIdleConns: 1000, MaxIdleConnsPerHost: 1000, IdleConnTimeout: time.Minute, DisableCompression: true,
	}
	t.Protocols.SetHTTP1(true)
	return t
}

// newSharedTransport returns a transport whose requests share connections if the server speaks
// HTTP/2 over TLS. A dead connection is closed within AnswerTimeout, so that neither the requests
// that wait on it nor later ones hang for longer.
func newSharedTransport(conf Config) *http.Transport {
	t := newTransport(conf)
	t.Protocols.SetHTTP2(true) // without TLS, nothing tells whether a server, or a proxy, speaks it
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingInterval, PingTimeout: driver.AnswerTimeout - pingInterval}
	return t
}

// infoOf returns what the store behind a service promises, through the service.
func infoOf(s *wire.Store) (driver.Info, error) {
	if s.API != wire.Version {
		return driver.Info{}, driver.Invalidf("server: it speaks %q, and not %s: is it a lock service, of a version that fits?",
			s.API, wire.Version)
	}
	fencing, ok := wire.Strength(s.Fencing)
	if !ok {
		return driver.Info{}, driver.Invalidf("server: it has fencing tokens of an unknown strength, %q", s.Fencing)
	}
	return driver.Info{
		Backend: "remote", Tenure: driver.TenureLease, Fencing: fencing,
		Shared: s.Shared, Slots: s.Slots, MinTTL: wire.Duration(s.MinTTL), MaxTTL: wire.Duration(s.MaxTTL),
		Assumptions: append([]string{"all replicas of the lock service use the same store, " + s.Backend}, s.Assumptions...),
		Unmet:       s.Unmet,
	}, nil
}

// Info implements [driver.Driver].
func (d *Driver) Info() driver.Info { return d.info }

// Backend returns the kind of the store behind the service, such as "redis".
func (d *Driver) Backend() string { return d.backend }

// begin lets a call begin, which ends before Close returns. It returns the context of the call,
// which ends with ctx and with the driver.
func (d *Driver) begin(ctx context.Context) (_ context.Context, end func(), _ error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil {
		return nil, nil, driver.ErrClosed
	}
	d.working.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(d.ctx, func() { cancel(driver.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		d.working.Done()
	}, nil
}

// Close implements [driver.Driver].
func (d *Driver) Close() error {
	d.mu.Lock()
	d.cancel(driver.ErrClosed) // ends all calls, and makes begin fail from now on
	d.mu.Unlock()
	d.working.Wait()
	d.closeConnections()
	return nil
}

// closeConnections closes the connections, which no request uses any more.
func (d *Driver) closeConnections() {
	d.client.http.CloseIdleConnections()
	d.waiting.http.CloseIdleConnections()
}

// Lease implements [driver.Driver].
func (d *Driver) Lease(name, id string, ttl time.Duration) driver.Lease {
	return &lease{d: d, id: id, ref: wire.Lease{Name: name, ID: id}, ttl: wire.Millis(ttl)}
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	answers := make([]driver.Renewal, len(due))
	ctx, end, err := d.begin(ctx)
	if err != nil {
		return fill(answers, err)
	}
	defer end()
	if len(due) == 0 {
		return answers
	}
	var batch wire.Renew
	for _, l := range due { // the core sends no more than fit into the body of a request
		batch.Leases = append(batch.Leases, wire.Renewable{Lease: l.(*lease).ref, TTL: l.(*lease).ttl})
	}
	var start driver.Instant
	var got wire.RenewedAll
	err = d.client.do(ctx, func(ctx context.Context, server int) error {
		start, got = driver.Now(), wire.RenewedAll{}
		_, err := d.client.post(ctx, server, wire.PathRenew, batch, &got)
		return err
	})
	if err == nil && len(got.Results) != len(answers) {
		err = fmt.Errorf("the lock service gave %d answers for %d leases", len(got.Results), len(answers))
	}
	if err != nil {
		return fill(answers, err)
	}
	for i, r := range got.Results {
		if r.Type == "" {
			answers[i].Start = start
			continue
		}
		answers[i].Err = errorOf(&wire.Problem{Type: r.Type, Detail: r.Detail})
	}
	return answers
}

func fill(answers []driver.Renewal, err error) []driver.Renewal {
	for i := range answers {
		answers[i].Err = err
	}
	return answers
}

// A lease is a lease in the service.
type lease struct {
	d     *Driver
	id    string     // of the request
	ref   wire.Lease // with the id of the answer, if there was one
	ttl   int64      // in milliseconds
	grant driver.Grant

	released atomic.Bool
}

// ID implements [driver.Lease].
func (l *lease) ID() string { return l.id }

// Grant implements [driver.Lease].
func (l *lease) Grant() driver.Grant { return l.grant }

// Release implements [driver.Lease].
func (l *lease) Release(ctx context.Context) error {
	if l.released.Load() {
		return nil
	}
	err := l.d.call(ctx, wire.PathRelease, l.ref)
	if err == nil {
		l.released.Store(true)
	}
	return err
}

// SetHolder implements [driver.Lease].
func (l *lease) SetHolder(ctx context.Context, h driver.Holder) error {
	return l.d.call(ctx, wire.PathLabel, wire.Label{Lease: l.ref, Process: processOf(h)})
}

// processOf returns a holder, and as much of its label, as the service takes. A service makes all
// other kinds by itself.
func processOf(h driver.Holder) wire.Process {
	h.PID, h.Label = max(h.PID, 0), strings.ToValidUTF8(h.Label[:min(len(h.Label), wire.MaxLabel)], "")
	if h.Kind != driver.KindDetached {
		h.Kind = driver.KindProcess
	}
	return wire.ProcessOf(h)
}

// call posts a message that has no answer but its success. If the answer to an earlier try was
// lost, that try may have ended the hold. Nobody can tell, and it does no harm: the core notices a
// loss by its own clock.
func (d *Driver) call(ctx context.Context, path string, message any) error {
	ctx, end, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	wasSent := false
	err = d.client.do(ctx, func(ctx context.Context, server int) error {
		_, err := d.client.post(ctx, server, path, message, nil)
		wasSent = wasSent || mayBeDone(err)
		return err
	})
	if wasSent && path != wire.PathLabel && errors.Is(err, driver.ErrLost) && ctx.Err() == nil {
		return nil
	}
	return err
}
