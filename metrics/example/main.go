// Command example uses locks in memory until it is interrupted, and serves its metrics
// to Prometheus. Beside it, compose.yaml starts Prometheus with the alert rules and
// Grafana with the dashboard and one alert, all provisioned:
//
//	go run ./example &
//	cd example && docker compose up
//
// Then the dashboard is at http://localhost:3000, Grafana's alert at
// http://localhost:3000/alerting/list, and the rules at http://localhost:9090/alerts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/metrics"
)

func main() {
	addr := flag.String("listen", "127.0.0.1:8080", "`address` to serve /metrics on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	listener, err := net.Listen("tcp", *addr)
	if err == nil {
		slog.Info("serving", "url", fmt.Sprintf("http://%s/metrics", listener.Addr()))
		err = run(ctx, listener)
	}
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		slog.Error("example", "err", err)
		os.Exit(1) //nolint:forbidigo // the last line of main: nothing is deferred
	}
}

// run uses locks and serves the metrics until ctx is done.
func run(ctx context.Context, listener net.Listener) error {
	collector, err := metrics.New(metrics.Options{
		Resources: []string{"invoices", "reports"}, // so that an alert sees their first failure
	})
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(collector); err != nil {
		return err
	}
	store := memlock.New()
	locker, err := snib.New(store, snib.TTL(3*time.Second), snib.Tracing(collector.Trace()), snib.Logging(slog.Default()))
	if err != nil {
		return err
	}

	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	ctx, cancel := context.WithCancelCause(ctx)
	var working sync.WaitGroup
	working.Go(func() { cancel(collector.Survey(ctx, store, 5*time.Second)) })
	for range 8 {
		working.Go(func() { work(ctx, locker) })
	}
	select {
	case err = <-served:
		cancel(err)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	working.Wait()
	return errors.Join(err, server.Close(), locker.Close())
}

// work acquires one of a few locks and holds it for a random time, again and again.
func work(ctx context.Context, locker *snib.Locker) {
	for ctx.Err() == nil {
		name, long := fmt.Sprintf("invoices/%d", rand.N(3)), rand.N(20*time.Millisecond)
		if rand.N(20) == 0 {
			name, long = "reports", rand.N(5*time.Second)
		}
		l := locker
		if rand.N(10) == 0 {
			l = locker.With(snib.NoWait())
		}
		err := l.Do(ctx, name, func(ctx context.Context, _ *snib.Lock) error {
			select {
			case <-time.After(long):
			case <-ctx.Done():
			}
			return nil
		})
		if err != nil && !errors.Is(err, snib.ErrHeld) && ctx.Err() == nil {
			slog.Error("work", "err", err)
		}
	}
}
