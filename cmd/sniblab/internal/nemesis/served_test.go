//go:build linux

package nemesis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/history"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/remotelock"
	"github.com/sniblock/snib/serve"
)

// startServed returns how to start two replicas of a lock service on a store. With secure, clients
// reach them by TLS, and wait over HTTP/2.
func startServed(start func(*world), secure bool) func(*world) {
	return func(w *world) {
		start(w)
		store := w.direct
		w.faults, w.proxies, w.Mixed = nil, nil, false
		w.addWorkerFaults()
		certs := ""
		if secure {
			certs = w.dir
			livetest.Certify(w.t, certs)
		} else { // in TLS, no request can be told from others
			w.request = []string{"/v1/acquire"}
		}
		var replicas []*replica
		var addrs []string
		for range 2 {
			r := &replica{t: w.t, job: Job{Store: store, Listen: net.JoinHostPort("127.0.0.1", strconv.Itoa(livetest.FreePort(w.t))), Certs: certs}}
			r.Restart()
			replicas, addrs = append(replicas, r), append(addrs, r.Addr())
		}
		w.addProxies("served", addrs...)
		w.Store.Certs = certs
		w.direct = store
		w.addServerFaults(nil, listOf(replicas)...)
	}
}

// A replica is a process that serves the locks of a store.
type replica struct {
	*livetest.Child
	t   testing.TB
	job Job
}

func (r *replica) Addr() string { return r.job.Listen }
func (r *replica) Hang()        { r.Signal(syscall.SIGSTOP) }
func (r *replica) Resume()      { r.Signal(syscall.SIGCONT) }
func (r *replica) MayEnd()      {}
func (r *replica) Up() bool     { return true }

// Restart implements [pair.Server].
func (r *replica) Restart() {
	r.Child = livetest.StartChild(r.t, r.job)
	r.Expect("ready")
}

// serve is the job of a replica.
func (j Job) serve(ctx context.Context) error {
	d, err := j.Store.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	s, err := serve.New(d, serve.Options{})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", j.Listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // it says nothing of interest
	livetest.Say("ready")
	if j.Certs == "" {
		err = server.Serve(listener)
	} else {
		err = server.ServeTLS(listener, filepath.Join(j.Certs, livetest.CertFile), filepath.Join(j.Certs, livetest.KeyFile))
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return s.Drain(context.Background())
}

// openService returns a driver for the replicas. It prefers the first one.
func (s Store) openService(ctx context.Context) (driver.Driver, error) {
	var conf remotelock.Config
	scheme := "http://"
	if s.Certs != "" {
		authority, err := os.ReadFile(filepath.Join(s.Certs, livetest.AuthorityFile))
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(authority)
		scheme, conf.TLS = "https://", &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	for _, addr := range s.Addrs {
		conf.Servers = append(conf.Servers, scheme+addr)
	}
	return remotelock.Open(ctx, conf)
}

// progressBound is how long nobody may get a lock that a service serves: a TTL, for the hold of a
// replica that died between the grant and its answer, and what a busy machine needs. It is less
// than the 15 s after which stores forget a waiter that is silent, for which nobody may have to
// wait.
const progressBound = ttl + 10*time.Second

// checkProgress checks that somebody got each lock all the time. Slack is how late the machine was.
func checkProgress(t *testing.T, events []history.Event, slack time.Duration) {
	t.Helper()
	names, last := map[string]string{}, map[string]int64{}
	for _, e := range events {
		key := fmt.Sprint(e.Worker, e.ID)
		switch e.Kind {
		case history.Call:
			names[key] = e.Name
			if last[e.Name] == 0 {
				last[e.Name] = e.At
			}
		case history.Acquired:
			name := names[key]
			if gap := time.Duration(e.At - last[name]); gap > progressBound+slack {
				t.Errorf("nobody got %s for %v, want %v at most", name, gap, progressBound+slack)
			}
			last[name] = e.At
		}
	}
}
