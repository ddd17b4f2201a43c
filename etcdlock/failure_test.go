package etcdlock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/outagetest"
)

// TestFailures proves cells of etcd in docs/failures.md; other tests prove the rest.
func TestFailures(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, "--bcrypt-cost=4", "--quota-backend-bytes=8388608")
	server.RequireLogin()
	const secret = "a secret of the program"
	addUser := func(password string) {
		server.Ctl("user", "add", "program:"+password)
		server.Ctl("user", "grant-role", "program", "root")
	}
	addUser(secret)
	open := func(t *testing.T) driver.Driver {
		d := newDriver(t, dialAs(t, "program", secret, []string{server.Addr()}), etcdlock.Timeout(5*time.Minute))
		t.Cleanup(func() { d.Close() })
		return d
	}
	setPassword := func(password string) {
		server.Ctl("user", "delete", "program") // which ends its logins
		addUser(password)
	}
	outagetest.Store{Open: open, Secret: secret}.Failures(t,
		outagetest.Failure{Name: "Password", Denied: true, Says: "invalid user ID or password", Begin: func(*testing.T) func() {
			setPassword("another")
			return func() { setPassword(secret) }
		}},
		outagetest.Hung("answer", server),
		outagetest.Restarted(server),
		outagetest.Failure{Name: "FullDisk", Renews: true, Begin: func(*testing.T) func() {
			fill(server)
			return func() {
				got, err := server.TryCtl("endpoint", "status", "--write-out=fields")
				if err != nil {
					t.Fatal(err)
				}
				_, rest, _ := strings.Cut(got, `"Revision" : `)
				revision, _, _ := strings.Cut(rest, "\n")
				server.Ctl("compact", "--physical", revision)
				server.Ctl("defrag")
				server.Ctl("alarm", "disarm")
			}
		}},
	)
}

// fill writes until etcd refuses it.
func fill(server *etcdtest.Server) {
	for {
		if _, err := server.TryCtl("put", "filler", strings.Repeat("x", 100_000)); err != nil {
			return
		}
	}
}
