package serve

import (
	"cmp"
	"context"
	"log"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/remotelock/wire"
	"github.com/sniblock/snib/serve/internal/console"
	"github.com/sniblock/snib/serve/internal/events"
	"github.com/sniblock/snib/serve/internal/waiting"
)

// Options are the settings of a [Service]. A zero field means its default.
type Options struct {
	// Access decides who may do what. Without it, the service admits everybody on this host, and
	// nobody else.
	Access Authorizer

	// Doctor examines the store, and Leaks searches it for what will not end by itself. Nil means
	// that there is no such path. The results are used for 10 s.
	Doctor func(context.Context) ([]wire.Finding, error)
	Leaks  func(context.Context) ([]wire.Leak, error)

	// Metrics serves /metrics to everybody who may read. Nil means that there is no such path.
	Metrics http.Handler

	// Fence keeps the marks of POST /v1/fence, durably and for all replicas. In its marks, the name
	// of the resource in the store stands for the lock. Nil means that there is no such path.
	Fence fence.Guard

	// Audit returns up to n of the latest lines of the audit log that a principal may see, the
	// latest first. Nil means that there is none.
	Audit func(p *Principal, n int) []wire.AuditEvent

	// Log, if not nil, is called with a line for people about each change of the store's state, and
	// about faults, of each kind once a minute at most. It returns soon, and is safe for concurrent
	// use.
	Log func(line string)

	// Grace returns for how long the store grants nothing, if an error of the driver says so. Nil
	// means that none does.
	Grace func(error) time.Duration

	// Identity returns what tells the store from all others, for as long as it exists; "" if nothing
	// does. It is asked until it has answered once. Nil means that nothing tells.
	Identity func(context.Context) (string, error)

	// Observe, if not nil, is called after each answer. It returns soon, and is safe for concurrent
	// use.
	Observe func(Exchange)

	limits limits // that tests have
}

// limits bound how clients wait. A zero field means its default.
type limits struct {
	wait         time.Duration // of one request; a client that wants to wait for longer sends it again
	placeTimeout time.Duration // of the place of a client between two requests; nobody else gets the lock in its turn
	places       int           // acquisitions that may wait; a namespace has at most as many as are free
	events       time.Duration // from one list of the store to the next, for those who listen to events
}

func (o Options) withDefaults() Options {
	if o.Access == nil {
		o.Access = LocalOnly()
	}
	if o.Identity == nil {
		o.Identity = func(context.Context) (string, error) { return "", nil }
	}
	if o.Observe == nil {
		o.Observe = func(Exchange) {}
	}
	if o.Log == nil {
		o.Log = func(string) {}
	}
	o.limits.wait = cmp.Or(o.limits.wait, 30*time.Second)
	o.limits.placeTimeout = cmp.Or(o.limits.placeTimeout, 3*time.Second)
	o.limits.places = cmp.Or(o.limits.places, 10_000)
	o.limits.events = cmp.Or(o.limits.events, time.Second)
	return o
}

// A Service is the handler of a lock service. It is safe for concurrent use.
type Service struct {
	driver driver.Driver
	info   driver.Info
	opts   Options

	events   *events.Hub
	store    storeWatch
	identity atomic.Pointer[string] // nil: not known yet
	doctor   check[[]wire.Finding]
	leaks    check[[]wire.Leak]

	faults      *faultLog
	unserved    *faultLog // requests that the store did not serve
	conflicts   *faultLog // of fencing tokens; clients with a wrong id make some, too
	connections *faultLog // and panics

	running  sync.WaitGroup  // goroutines that use the driver
	streams  atomic.Int32    // clients that listen to events
	draining context.Context // done from Drain on
	drain    func()          // begins that; called with mu, so that nothing begins to run afterwards

	mu        sync.Mutex
	places    map[placeKey]*place
	queues    map[string][]*place // that wait for a lock, by its name in the store; the first one is asked for
	waits     int                 // places that wait, and not for an answer of the store alone
	waiting   map[string]int      // those, by the prefix of their namespace
	withdrawn withdrawals
	polls     int // requests that wait
}

// New returns a service over the store of d, which the caller closes after [Service.Drain]. Its
// error matches [driver.ErrInvalid] if the leases of that store end with a session, for they would
// end with a replica, or if the store is another service.
func New(d driver.Driver, opts Options) (*Service, error) {
	info := d.Info()
	if info.Tenure == driver.TenureSession {
		return nil, driver.Invalidf("store %s: its locks end with the session of the process that took them, so a lock service "+
			"could not keep them for its clients; use memory, SQLite, Redis, Redlock, or rows in PostgreSQL or MariaDB", info.Backend)
	}
	if info.Backend == "remote" { // it refuses our ids, and holds that are pending
		return nil, driver.Invalidf("store %s: it is another lock service; give clients its address", info.Backend)
	}
	draining, drain := context.WithCancel(context.Background())
	s := &Service{
		draining: draining, drain: drain, driver: d, info: info, opts: opts.withDefaults(),
		places: map[placeKey]*place{}, queues: map[string][]*place{}, waiting: map[string]int{},
		doctor: newCheck[[]wire.Finding](), leaks: newCheck[[]wire.Leak](),
	}
	for _, l := range []**faultLog{&s.faults, &s.unserved, &s.conflicts, &s.connections} {
		*l = &faultLog{s.opts.Log, rate.Sometimes{Interval: faultInterval}}
	}
	s.store.log, s.store.grace, s.store.known = s.opts.Log, opts.Grace, make(chan struct{})
	s.running.Go(s.watch)
	list := func(ctx context.Context, yield func(driver.Status) bool) error {
		return d.List(ctx, "", func(st driver.Status) bool { return yield(s.withWaiters(st)) })
	}
	s.events = events.NewHub(list, s.opts.limits.events, s.running.Go, draining.Done())
	return s, nil
}

// Drain ends the service, and returns when it does not use the driver any more, or ctx is done.
// New requests are answered with 503, and requests that wait with 202. Holds stay in the store,
// and places in queues are given up.
func (s *Service) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.drain()
	for _, p := range s.places {
		p.onLocked(waiting.ServiceEnds)
	}
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() { s.running.Wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isDraining reports whether Drain was called.
func (s *Service) isDraining() bool { return s.draining.Err() != nil }

// A route is what the service does at one path.
type route struct {
	method string
	serve  func(*Service, http.ResponseWriter, *http.Request, *Principal) error
	query  []string // its parameters in the URL
}

// routes has the route of each path. Paths are compared as they are: none is cleaned, and no name
// of a lock or a resource is in one.
var routes = map[string]route{
	wire.PathAcquire:  {http.MethodPost, posted((*Service).acquire), nil},
	wire.PathWithdraw: {http.MethodPost, posted((*Service).withdraw), nil},
	wire.PathRenew:    {http.MethodPost, posted((*Service).renew), nil},
	wire.PathRelease:  {http.MethodPost, posted((*Service).release), nil},
	wire.PathLabel:    {http.MethodPost, posted((*Service).label), nil},
	wire.PathBreak:    {http.MethodPost, posted((*Service).breakHold), nil},
	wire.PathFence:    {http.MethodPost, posted((*Service).fence), nil},
	wire.PathLock:     {http.MethodGet, (*Service).getLock, []string{"name"}},
	wire.PathLocks:    {http.MethodGet, (*Service).listLocks, []string{"prefix"}},
	wire.PathEvents:   {http.MethodGet, (*Service).getEvents, []string{"prefix"}},
	wire.PathStore:    {http.MethodGet, (*Service).getStore, nil},
	wire.PathAudit:    {http.MethodGet, (*Service).getAudit, []string{"limit"}},
	wire.PathDoctor:   {http.MethodGet, (*Service).getDoctor, nil},
	wire.PathLeaks:    {http.MethodGet, (*Service).getLeaks, nil},
	wire.PathMetrics:  {http.MethodGet, (*Service).getMetrics, nil},
}

// posted returns what a route does with a message, which it reads first.
func posted[M any](serve func(*Service, http.ResponseWriter, *http.Request, *Principal, *M) error) func(
	*Service, http.ResponseWriter, *http.Request, *Principal) error {
	return func(s *Service, w http.ResponseWriter, r *http.Request, p *Principal) error {
		msg := new(M)
		if err := readBody(w, r, msg); err != nil {
			return err
		}
		return serve(s, w, r, p, msg)
	}
}

// ServeHTTP implements [http.Handler].
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
	defer s.observe(r, answer, time.Now())
	w = answer
	limitRead(w, r)
	defer limitWrite(w) // net/http sends what is left in its buffers
	maps.Copy(w.Header(), answerHeaders)
	switch {
	case r.URL.Path == wire.PathHealth: // it answers as long as the process runs
		s.answer(w, writeJSON(w, http.StatusOK, map[string]string{"status": "ok"}))
		return
	case console.Has(r): // its files are no secret: what they show comes from the API
		limitWrite(w)
		console.Serve(w, r)
		return
	case !s.enter():
		s.answer(w, errDraining())
		return
	}
	defer s.running.Done()
	if r.URL.Path == wire.PathReady {
		s.answer(w, s.ready(w, r))
		return
	}
	s.answer(w, s.dispatch(w, r))
}

// answer answers with an error, if there is one.
func (s *Service) answer(w http.ResponseWriter, err error) {
	if err != nil {
		writeProblem(w, s.problemOf(err))
	}
}

// dispatch lets a request in, and serves it.
func (s *Service) dispatch(w http.ResponseWriter, r *http.Request) error {
	p, err := s.opts.Access.Authenticate(r)
	if err != nil {
		return err
	}
	at, ok := routes[r.URL.EscapedPath()]
	switch {
	case !ok:
		return errNoPath()
	case at.method != r.Method && !(at.method == http.MethodGet && r.Method == http.MethodHead):
		w.Header().Set("Allow", at.method)
		return wire.NewProblem(wire.ProblemMethod, "use "+at.method, 0)
	}
	if err := checkQuery(r, at.query); err != nil {
		return err
	}
	if err := s.checkStore(r); err != nil {
		return err
	}
	return at.serve(s, w, r, p)
}

// enter lets a request use the driver, unless the service drains. The caller ends it with
// running.Done.
func (s *Service) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isDraining() {
		return false
	}
	s.running.Add(1)
	return true
}

func errNoPath() error {
	return wire.NewProblem(wire.ProblemPath, "the paths are in docs/serve.md", 0)
}

func errDraining() *wire.Problem {
	return wire.NewProblem(wire.ProblemDraining, "this replica is shutting down; ask another one", time.Second)
}

// errNoAnswer is the cause of the end of a context that bounds the wait for the store's answer.
const errNoAnswer driver.Sentinel = "the store does not answer"

// bounded returns a context for a question to the store. It ends with the client's request.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, driver.AnswerTimeout, errNoAnswer)
}

// answerHeaders keep pages of others from using an answer in a browser or framing it, browsers from
// taking it for a page, and everybody from keeping it. There is no header that admits other
// origins, and no cookie. The console has more, for it is a page. A request that waits has them
// already, so all share their values, and they are few.
var answerHeaders = http.Header{
	"Cache-Control":                {"no-store"},
	"Content-Security-Policy":      {"default-src 'none'; frame-ancestors 'none'"},
	"Cross-Origin-Resource-Policy": {"same-origin"},
	"X-Content-Type-Options":       {"nosniff"},
}

// NewServer returns a server for the service, which cuts off clients that are slow. It speaks
// HTTP/1.1 and HTTP/2, also without TLS. To end it, call [Service.Drain], and then Shutdown.
func (s *Service) NewServer() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: s, Protocols: protocols,
		// A deadline of an answer resets its stream, which the client does not take in either if it
		// reads nothing from the connection.
		HTTP2:             &http.HTTP2Config{WriteByteTimeout: writeTimeout},
		ErrorLog:          log.New(s.connections, "", 0), //nolint:forbidigo // it writes to Options.Log
		ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
}
