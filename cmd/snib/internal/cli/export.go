package cli

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
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
	f.StringVar(&e.listen, "listen", "127.0.0.1:9877", "`ADDRESS` to serve /metrics on; :9877 is all addresses of this host")
	e.every = addDuration(cmd, "every", "", "how often to read the store", time.Minute, time.Second)
	e.searchEvery = addDuration(cmd, "leaks-every", "", "how often to search it for leaks; 0 means never", 10*time.Minute, 0)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if err := cmp.Or(a.setStoreURL(args), checkListen(e.listen)); err != nil {
			return err
		}
		// Not Look: that would watch nothing for ever if the store is created later.
		return a.withStore(backend.Take, func(_ context.Context, s *backend.Store) error {
			return e.export(untilSignal(), s)
		})
	}
	return cmd
}

// export serves the metrics of s until ctx is done.
func (e *exportCommand) export(ctx context.Context, s *backend.Store) error {
	e.err = newBackgroundWriter(e.err)
	collector, err := metrics.New(metrics.Options{})
	if err != nil {
		return err
	}
	checker := newStoreChecker(e.app, s)
	if err := checker.registry.Register(collector); err != nil {
		return err
	}
	listener, err := listen(e.listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(checker.registry, promhttp.HandlerOpts{}))
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
	store    *backend.Store
	registry *prometheus.Registry

	graceEnd atomic.Int64 // Unix time in milliseconds
	check, ahead, examined,
	found, searched *prometheus.GaugeVec // without labels, a vector has no series before its first value

	examineFailed, searchFailed bool // when that was last tried
}

func newStoreChecker(a *app, s *backend.Store) *storeChecker {
	c := &storeChecker{app: a, store: s, registry: prometheus.NewRegistry()}
	opts := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Name: "snib_store_" + name, Help: help, ConstLabels: prometheus.Labels{"backend": s.Info().Backend}}
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(opts(name, help), labels)
		c.registry.MustRegister(g)
		return g
	}
	c.check = gauge("check", "1 for the verdict of each check of snib doctor, and 0 for the others.", "check", "verdict")
	c.ahead = gauge("clock_ahead_seconds", "For how long the server's clock is ahead of that of this host.", "check")
	c.examined = gauge("check_timestamp_seconds", "When the store was last examined.")
	c.found = gauge("leaks", "Leaks that the last search found, by kind.", "kind")
	c.searched = gauge("leaks_timestamp_seconds", "When the last search for leaks ended.")
	c.registry.MustRegister(prometheus.NewGaugeFunc(
		opts("grace_seconds", "For how long the store will grant nothing, because it has restarted."),
		func() float64 { return max(0, time.Until(time.UnixMilli(c.graceEnd.Load())).Seconds()) }))
	return c
}

// newLeakSearch returns one search for leaks, which prints nothing.
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
	findings, err := c.store.Examine(ctx)
	grace, graceErr := c.store.Grace(ctx, "snib-export", defaultTTLFor(c.store.Info()))
	if !c.succeeded(&c.examineFailed, "the store can't be examined", errors.Join(err, graceErr)) {
		return
	}
	c.graceEnd.Store(time.Now().Add(grace).UnixMilli())
	c.export(findings)
	c.examined.WithLabelValues().SetToCurrentTime()
}

// searchLeaks searches the store for leaks.
func (c *storeChecker) searchLeaks(ctx context.Context) {
	all, err := newLeakSearch(c.app).find(ctx, c.store, "")
	if !c.succeeded(&c.searchFailed, "the store can't be searched for leaks", err) {
		return
	}
	found := make(map[string]int)
	for _, l := range all {
		found[l.kind]++
	}
	for _, kind := range []string{leakEndless, leakDead, leakInherited, leakDistant, leakStuck, leakForeign} {
		c.found.WithLabelValues(kind).Set(float64(found[kind])) // 0, so that an alert sees the first one as an increase
	}
	c.searched.WithLabelValues().SetToCurrentTime()
}

// succeeded reports whether err is nil. It prints the first of several errors in a row, unless that
// only says that the command ends.
func (c *storeChecker) succeeded(failed *bool, problem string, err error) bool {
	if err != nil && !*failed && !errors.Is(err, context.Canceled) {
		c.infof("%s: %s", problem, message(err))
	}
	*failed = err != nil
	return err == nil
}

// export exports the worst verdict of each check, because a check may have several findings, and
// the clocks.
func (c *storeChecker) export(findings []backend.Finding) {
	verdicts := []backend.Verdict{backend.Good, backend.Note, backend.Unmet} // the worst last
	worst := make(map[string]int)
	c.check.Reset()
	c.ahead.Reset()
	for _, f := range findings {
		check := printable(f.Check)
		worst[check] = max(worst[check], slices.Index(verdicts, f.Verdict))
		if f.Ahead != nil {
			c.ahead.WithLabelValues(check).Set(*f.Ahead)
		}
	}
	for check, w := range worst {
		for i, v := range verdicts {
			c.check.WithLabelValues(check, string(v)).Set(map[bool]float64{true: 1}[i == w])
		}
	}
}
