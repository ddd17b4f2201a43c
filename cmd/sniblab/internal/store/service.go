//go:build unix

package store

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/serve"
)

// A Service is the job of a process that is a replica of a lock service: see livetest.Main.
type Service struct {
	Store  Store
	Listen string // its address
	Certs  string // its folder of livetest.Certify, or "" without TLS
}

// NewService returns the job of a replica with an address of its own.
func NewService(t testing.TB, behind Store, certs string) Service {
	return Service{behind, net.JoinHostPort("127.0.0.1", strconv.Itoa(livetest.FreePort(t))), certs}
}

// Serve does the job until ctx is done.
func (s Service) Serve(ctx context.Context) error {
	d, err := s.Store.Open(ctx)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // the process ends
	handler, err := serve.New(d, serve.Options{Metrics: http.HandlerFunc(tellStats)})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // it says nothing of interest
	livetest.Say("ready")
	if err := Listen(server, listener, s.Certs); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return handler.Drain(context.Background())
}

// A Replica is the process of a [Service]. It is a servers.Server.
type Replica struct {
	*livetest.Child
	t   testing.TB
	job Service
}

// StartReplica starts a replica. The test program's livetest.Main must do a [Service], or a job
// that has its fields.
func StartReplica(t testing.TB, job Service) *Replica {
	r := &Replica{t: t, job: job}
	r.Restart()
	return r
}

// Addr returns its address.
func (r *Replica) Addr() string { return r.job.Listen }

// Resume lets a process that hangs go on.
func (r *Replica) Resume() { r.Signal(syscall.SIGCONT) }

// MayEnd does nothing: a replica must not end by itself.
func (r *Replica) MayEnd() {}

// Up returns true.
func (r *Replica) Up() bool { return true }

// Ready returns nil.
func (r *Replica) Ready() error { return nil }

// Restart starts the process, which was killed.
func (r *Replica) Restart() {
	r.t.Helper()
	r.Child = livetest.StartChild(r.t, r.job)
	r.Expect("ready")
}

// Stats are what a replica uses.
type Stats struct {
	Goroutines int
	Memory     int64         // resident, in bytes
	Live       int64         // the part of it that is in use, after a garbage collection
	CPU        time.Duration // since it was started
}

// tellStats answers /metrics with the Stats of this process.
func tellStats(w http.ResponseWriter, _ *http.Request) {
	s := Stats{Goroutines: runtime.NumGoroutine()}
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // it can't fail
	s.CPU = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	text, _ := os.ReadFile("/proc/self/statm")
	if fields := strings.Fields(string(text)); len(fields) > 1 {
		pages, _ := strconv.ParseInt(fields[1], 10, 64) // 0 shows that it failed
		s.Memory = pages * int64(os.Getpagesize())
	}
	var mem runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&mem)
	s.Live = int64(mem.HeapAlloc + mem.StackInuse)
	_ = json.NewEncoder(w).Encode(s) // the benchmark sees that it is missing
}

// Stats returns what the replica uses.
func (r *Replica) Stats() (s Stats) {
	r.t.Helper()
	// The transport keeps no connection, which would count.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // on loopback
	scheme := "http://"
	if r.job.Certs != "" {
		scheme = "https://"
	}
	resp, err := client.Get(scheme + r.job.Listen + "/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		r.t.Fatal(err)
	}
	return s
}
