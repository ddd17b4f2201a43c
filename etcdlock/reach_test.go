package etcdlock_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// TestUnreachable checks that errors name the reason why etcd can't be reached, at once if that
// is known at once, and distinguish an outage from permanent reasons.
func TestUnreachable(t *testing.T) {
	plain, secure := etcdtest.Start(t), etcdtest.Start(t, etcdtest.Secure)
	hung := livetest.NewProxy(t, plain.Addr())
	hung.Sever()
	late := livetest.NewProxy(t, secure.Addr())
	late.Delay(0, 700*time.Millisecond)
	balancer := livetest.Fake(t, func(conn net.Conn) { // whose members are all down
		_, _ = io.WriteString(conn, "HTTP/1.1 503 Service Unavailable\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
	})
	tests := []struct {
		name     string
		endpoint string
		says     string
		passes   bool // a later attempt may succeed
		slow     bool
	}{
		{name: "NoSuchHost", endpoint: "http://nosuch.invalid:2379", says: "no such host"},
		{name: "Refused", endpoint: "http://127.0.0.1:1", says: "refused", passes: true},
		{name: "TLSToPlain", endpoint: "https://" + plain.Addr(), says: "the server does not use TLS"},
		{name: "PlainToTLS", endpoint: "http://" + secure.Addr(), says: "the server requires TLS"},
		{name: "PlainToLateTLS", endpoint: "http://" + late.Addr(), says: "the server requires TLS", slow: true},
		{name: "Untrusted", endpoint: "https://" + secure.Addr(), says: "certificate"},
		{name: "Balancer", endpoint: "http://" + balancer, says: "http2: ", passes: true},
		{name: "Hung", endpoint: "http://" + hung.Addr(), says: "did not answer within", passes: true, slow: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			conf := clientv3.Config{Endpoints: []string{tt.endpoint}, Logger: zap.NewNop()}
			if strings.HasPrefix(tt.endpoint, "https") {
				conf.TLS = &tls.Config{}
			}
			client, err := clientv3.New(conf)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			d := newDriver(t, client)
			defer d.Close()
			for what, call := range map[string]func() error{
				"Acquire":             func() error { _, err := d.Acquire(t.Context(), request("job", "a")); return err },
				"Acquire with NoWait": func() error { _, err := d.Acquire(t.Context(), noWait("job", "a")); return err },
				"Ping":                func() error { return d.Ping(t.Context()) },
			} {
				// A machine that is too busy for a handshake within a second gets another try.
				livetest.Await(t, "answer of "+what, func() error {
					began, machine := time.Now(), livetest.Lateness(t)
					err := call()
					took, late := time.Since(began), machine()
					switch most := map[bool]time.Duration{false: time.Second, true: driver.AnswerTimeout}[tt.slow]; {
					case took > most+10*late:
						return fmt.Errorf("it came after %v, on a machine that was late by %v: %w", took, late, err)
					case err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "\n"):
						return fmt.Errorf("%w, want that it says %q", err, tt.says)
					case errors.Is(err, driver.ErrUnavailable) != tt.passes || errors.Is(err, driver.ErrHeld):
						return fmt.Errorf("%w, which matches ErrUnavailable: %v", err, !tt.passes)
					}
					return nil
				})
			}
		})
	}
}

// TestLoginLapses lets a login expire. The driver renews it, and no caller notices.
func TestLoginLapses(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, "--auth-token-ttl=1", "--bcrypt-cost=4") // a login must take much less than a second
	server.RequireLogin()
	holds := newDriver(t, dial(t, server), etcdlock.Timeout(time.Minute))
	waits := newDriver(t, dial(t, server), etcdlock.Timeout(time.Minute))
	defer holds.Close()
	defer waits.Close()
	l := acquire(t, holds, request("job", "holder"))
	w := livetest.Acquiring(t, waits, request("job", "waiter"))
	time.Sleep(4 * time.Second) // until the logins have expired; no event reports that
	if err := holds.Renew(t.Context(), []driver.Lease{l})[0].Err; err != nil {
		t.Errorf("Renew = %v", err)
	}
	release(t, acquire(t, holds, request("other", "holder")))
	release(t, l)
	release(t, w.Get(t))
}
