package cli

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/metrics"
)

// An exportCommand is one call of "snib export".
type exportCommand struct {
	*app
	listen      string
	every       *duration
	searchEvery *duration // for leaks
}

func (a *app) newExportCommand() *cobra.Command {
	e := &exportCommand{app: a}
	cmd := &cobra.Command{
		Use:     "export [URL]",
		Short:   "serve metrics of a store to Prometheus",
		Example: exportExamples,
		Long:    exportNotes,
		Args:    takes(cobra.MaximumNArgs(1)),

		ValidArgsFunction: a.completeURL,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&e.listen, "listen", "127.0.0.1:9877", "`ADDRESS` to serve /metrics on; :9877 is all addresses of this host")
	e.every = addDuration(cmd, "every", "", "how often to read the store", time.Minute, time.Second)
	e.searchEvery = addDuration(cmd, "leaks-every", "", "how often to search it for leaks; 0 means never", 10*time.Minute, 0)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if err := a.setStoreURL(args); err != nil {
			return err
		}
		// Not Look: that would watch nothing for ever if the store is created later.
		s, err := a.open(backend.Take)
		if err != nil {
			return err
		}
		defer closeSoon(s)
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
		defer stop()
		return e.export(ctx, s)
	}
	return cmd
}

// export serves the metrics of s until ctx is done.
func (e *exportCommand) export(ctx context.Context, s *backend.Store) error {
	collector, err := metrics.New(metrics.Options{})
	if err != nil {
		return err
	}
	checker := &storeChecker{app: e.app, store: s, leaks: newLeakSearch(e.app), failing: make(map[string]bool)}
	registry := prometheus.NewRegistry()
	if err := errors.Join(registry.Register(collector), registry.Register(checker)); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", e.listen)
	if err != nil {
		return usagef("--listen %s: %w", printable(e.listen), err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/{$}", http.RedirectHandler("/metrics", http.StatusFound))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}
	e.infof("serving http://%s/metrics for %s", listener.Addr(), printable(s.URL))

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var working sync.WaitGroup
	working.Go(func() { cancel(collector.Survey(ctx, s.Driver, e.every.value)) })
	working.Go(func() { repeat(ctx, e.every.value, checker.examine) })
	working.Go(func() { repeat(ctx, e.searchEvery.value, checker.searchLeaks) })
	working.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			cancel(failf(exitUnavailable, "serving metrics on %s: %w", listener.Addr(), err))
		}
	})
	<-ctx.Done()
	_ = server.Close() // scrapes that are under way are of no use to anybody
	working.Wait()
	if errors.Is(context.Cause(ctx), context.Canceled) { // by a signal
		return nil
	}
	return context.Cause(ctx)
}

// repeat calls do at once and then at each interval, until ctx is done. An interval of 0 means
// never.
func repeat(ctx context.Context, interval time.Duration, do func(context.Context)) {
	if interval == 0 {
		return
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		do(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// A storeChecker exports what only the command finds out about a store: the results of doctor and
// leaks. The results of the last success stay, with their time, when the store does not answer.
type storeChecker struct {
	*app
	store *backend.Store
	leaks *leaksCommand

	mu       sync.Mutex
	failing  map[string]bool // what failed when it was last tried
	checks   checks
	found    map[string]int // leaks by kind
	searched time.Time
}

// checks are the results of an examination.
type checks struct {
	at           time.Time // zero if there was none
	findings     []backend.Finding
	grace        time.Duration  // for how long the store granted nothing then
	restartGrace *time.Duration // the same after a restart; nil if this user may not ask
}

// newLeakSearch returns a search for leaks that prints nothing.
func newLeakSearch(a *app) *leaksCommand {
	silent := *a
	silent.quiet = true
	host, _ := os.Hostname() // without a host name no process is known to be gone
	return &leaksCommand{app: &silent, settle: &duration{value: defaultSettle}, host: host}
}

// examine checks the store. It takes no lock, except one for a moment in Redis and Redlock, which
// tell only so whether they grant any.
func (c *storeChecker) examine(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	now := checks{at: time.Now()}
	var err, graceErr error
	now.findings, err = c.store.Examine(ctx)
	now.grace, graceErr = c.store.Grace(ctx, driver.Request{Name: "snib-export", TTL: defaultTTLFor(c.store.Info())})
	if left, err := c.store.RestartGrace(ctx); err == nil {
		now.restartGrace = &left
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.succeeded("the store can't be examined", errors.Join(err, graceErr)) {
		c.checks = now
	}
}

// searchLeaks searches the store for leaks.
func (c *storeChecker) searchLeaks(ctx context.Context) {
	all, err := c.leaks.find(ctx, c.store, "")
	found := make(map[string]int)
	for _, kind := range []string{leakEndless, leakDead, leakKept, leakDistant, leakStuck, leakForeign} {
		found[kind] = 0 // so that an alert sees the first one as an increase
	}
	for _, l := range all {
		found[l.kind]++
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.succeeded("the store can't be searched for leaks", err) {
		c.found, c.searched = found, time.Now()
	}
}

// succeeded reports whether err is nil. It prints the first of several errors in a row, unless that
// only says that the command ends. The caller holds mu.
func (c *storeChecker) succeeded(problem string, err error) bool {
	if err != nil && !c.failing[problem] && !errors.Is(err, context.Canceled) {
		c.infof("%s: %s", problem, message(err))
	}
	c.failing[problem] = err != nil
	return err == nil
}

// newStoreDesc describes a metric of a store.
func newStoreDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("snib_store_"+name, help, append([]string{"backend"}, labels...), nil)
}

// descs are the descriptions of the metrics of a storeChecker.
type descs struct{ check, ahead, grace, restartGrace, examined, leaks, searched *prometheus.Desc }

func newDescs() descs {
	return descs{
		check:        newStoreDesc("check", "1 for the verdict of each check of snib doctor, and 0 for the others.", "check", "verdict"),
		ahead:        newStoreDesc("clock_ahead_seconds", "For how long the server's clock is ahead of that of this host.", "check"),
		grace:        newStoreDesc("grace_seconds", "For how long the store will grant nothing, because it has restarted."),
		restartGrace: newStoreDesc("restart_grace_seconds", "For how long a restart would make the store grant nothing."),
		examined:     newStoreDesc("check_timestamp_seconds", "When the store was last examined."),
		leaks:        newStoreDesc("leaks", "Leaks that the last search found, by kind.", "kind"),
		searched:     newStoreDesc("leaks_timestamp_seconds", "When the last search for leaks ended."),
	}
}

// Describe implements [prometheus.Collector].
func (c *storeChecker) Describe(ch chan<- *prometheus.Desc) {
	d := newDescs()
	for _, desc := range []*prometheus.Desc{d.check, d.ahead, d.grace, d.restartGrace, d.examined, d.leaks, d.searched} {
		ch <- desc
	}
}

// Collect implements [prometheus.Collector].
func (c *storeChecker) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, name := newDescs(), c.store.Info().Backend
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, append([]string{name}, labels...)...)
	}
	if !c.checks.at.IsZero() {
		gauge(d.examined, float64(c.checks.at.UnixMilli())/1000)
		gauge(d.grace, max(0, c.checks.grace-time.Since(c.checks.at)).Seconds())
		if left := c.checks.restartGrace; left != nil {
			gauge(d.restartGrace, left.Seconds())
		}
		c.collectFindings(gauge, &d)
	}
	if !c.searched.IsZero() {
		gauge(d.searched, float64(c.searched.UnixMilli())/1000)
		for kind, n := range c.found {
			gauge(d.leaks, float64(n), kind)
		}
	}
}

// collectFindings exports the worst verdict of each check, because a check may have several
// findings, and the clocks.
func (c *storeChecker) collectFindings(gauge func(*prometheus.Desc, float64, ...string), d *descs) {
	verdicts := []backend.Verdict{backend.Good, backend.Note, backend.Unmet} // the worst last
	worst, ahead := make(map[string]int), make(map[string]float64)
	for _, f := range c.checks.findings {
		check := printable(f.Check)
		for i, v := range verdicts {
			if f.Verdict == v {
				worst[check] = max(worst[check], i)
			}
		}
		if f.Ahead != nil {
			ahead[check] = *f.Ahead
		}
	}
	for check, offset := range ahead {
		gauge(d.ahead, offset, check)
	}
	for check, w := range worst {
		for i, v := range verdicts {
			value := 0.0
			if i == w {
				value = 1
			}
			gauge(d.check, value, check, string(v))
		}
	}
}
