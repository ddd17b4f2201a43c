package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock/wire"
	"github.com/sniblock/snib/serve"
)

// drainTimeout is how long snib serve takes to end after a signal: answers that are under way get
// that long.
const drainTimeout = 10 * time.Second

// A serveCommand is one call of "snib serve".
type serveCommand struct {
	*app
	listen string
	flags  accessFlags
}

func (a *app) newServeCommand() *cobra.Command {
	c := &serveCommand{app: a}
	cmd := &cobra.Command{
		Use:     "serve [URL]",
		Short:   "serve the locks of a store over HTTP",
		Example: serveExamples,
		Long:    serveNotes,
		Args:    takes(cobra.MaximumNArgs(1)),

		ValidArgsFunction: a.completeURL,
	}
	cmd.Flags().StringVar(&c.listen, "listen", "127.0.0.1:"+backend.ServicePort, "`ADDRESS` to serve on, HOST:PORT or unix:PATH; without --policy, it must be a loopback address, or a socket, which only its user can open")
	c.flags.register(cmd.Flags())
	cmd.AddCommand(a.newServeTokenCommand(), a.newServeCheckCommand())
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if err := a.setStoreURL(args); err != nil {
			return err
		}
		if err := c.check(); err != nil {
			return err
		}
		reloads := reloadRequests()
		return a.withStore(backend.Serve, func(_ context.Context, s *backend.Store) error {
			return c.serve(untilSignal(), s, reloads)
		})
	}
	return cmd
}

// check refuses flags that can't be right.
func (c *serveCommand) check() error {
	return cmp.Or(checkListen(c.listen), c.flags.check(c.listen))
}

// untilSignal returns a context that INT or TERM ends, for a command that runs until then. Another
// signal ends the process at once. A signal that our parent ignores is ignored here, too: a script
// starts "snib serve &" with INT ignored.
func untilSignal() context.Context {
	signal.Ignore(syscall.SIGPIPE) // nobody may read the log any more
	ctx, cancel := context.WithCancel(context.Background())
	sigs := make(chan os.Signal, 1)
	notifySignals(sigs, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-sigs
		signal.Stop(sigs)
		cancel()
	}()
	return ctx
}

// serve serves the locks of s until ctx is done.
func (c *serveCommand) serve(ctx context.Context, s *backend.Store, reloads <-chan os.Signal) error {
	stderr := newBackgroundWriter(c.err)
	c.err = stderr
	access, err := c.flags.open(jsonWriter{recordWriter{stderr, make(chan struct{}, 1)}})
	if err != nil {
		return err
	}
	metrics, err := newServeMetrics(s.Driver.Info().Backend)
	if err != nil {
		return err
	}
	if s.Private() {
		c.messagef("the store is in memory: a restart forgets all holds and reservations")
	}
	if grace := max(wire.DefaultTTL, access.longestTTL); s.Withhold(grace) {
		c.messagef("it grants nothing for %v; former holds that last longer may overlap with new ones", grace)
	}
	checks := serveChecks{c.app, s}
	options := serve.Options{
		Access: access.Authorizer, Audit: access.recent, Doctor: checks.doctor, Leaks: checks.leaks,
		Metrics: metrics.handler(), Observe: metrics.observe,
		Log:      func(line string) { c.messagef("%s", line) },
		Identity: func(ctx context.Context) (string, error) { return c.identity(ctx, s) },
	}
	if s.Withholds() {
		options.Grace = func(err error) time.Duration { left, _ := backend.Grace(err); return left }
	}
	guard, err := s.Guard()
	if err != nil {
		return err
	}
	if guard != nil { // in Redis, marks would be gone with its memory
		defer guard.Close() //nolint:errcheck // nobody uses it any more
		options.Fence = guard
	}
	listener, err := listen(c.listen)
	if err != nil {
		return err
	}
	defer listener.Close() //nolint:errcheck // the server closes it, unless it ends before it has begun
	service, err := serve.New(s.Driver, options)
	if err != nil {
		return err
	}
	metrics.service = service
	server := service.NewServer()
	defer c.drain(service, server) // it uses the store, which is closed then
	failed := make(chan error, 1)
	scheme := "http"
	if access.certs != nil {
		scheme, listener = "https", tls.NewListener(listener, access.certs.Config())
	}
	go func() { failed <- server.Serve(listener) }()
	go access.reloadOnSignal(ctx, c.app, reloads)
	if _, isSocket := socketPath(c.listen); isSocket {
		scheme = "unix"
	}
	c.infof("serving %s://%s for %s", scheme, listener.Addr(), printable(s.URL))
	if scheme == "http" && !wire.IsLoopback(c.listen) {
		c.messagef("tokens come over the network in clear text: give --tls-cert and --tls-key, unless a proxy with TLS is before this port")
	}
	select {
	case err := <-failed:
		return failf(exitUnavailable, "serving on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	c.infof("ending; another signal ends at once")
	return nil
}

// identity returns the identity of a store; "" if it keeps none.
func (c *serveCommand) identity(ctx context.Context, s *backend.Store) (string, error) {
	id, err := s.Identity(ctx)
	if err == nil || errors.Is(err, driver.ErrUnavailable) || ctx.Err() != nil {
		return id, err
	}
	c.messagef("the store has no id that clients could compare: %s", message(err))
	return "", nil
}

// drain ends the service and its server.
func (c *serveCommand) drain(service *serve.Service, server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if err := errors.Join(service.Drain(ctx), server.Shutdown(ctx)); err != nil {
		_ = server.Close() // what is under way has had its time
		c.infof("some requests had no answer within %v", drainTimeout)
	}
}

// serveChecks are what the commands doctor and leaks find in the store of a service.
type serveChecks struct {
	app   *app
	store *backend.Store
}

// doctor examines the store.
func (c serveChecks) doctor(ctx context.Context) ([]wire.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	found, err := diagnose(ctx, c.store, nil)
	return convert(found, func(f backend.Finding) wire.Finding {
		return wire.Finding{Check: f.Check, Verdict: string(f.Verdict), Value: f.Value, Advice: f.Advice}
	}), err
}

// leaks searches the store. The clients of a service run on hosts of their own, or in containers,
// so it does not look for their processes on this one.
func (c serveChecks) leaks(ctx context.Context) ([]wire.Leak, error) {
	search := newLeakSearch(c.app)
	search.host = ""
	found, err := search.find(ctx, c.store, "")
	return convert(found, func(k leak) wire.Leak {
		return wire.Leak{Kind: k.kind, Name: k.name, Problem: k.problem, Library: k.library, Unsure: k.unsure}
	}), err
}
