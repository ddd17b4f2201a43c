package zklock_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/zktest"
	"github.com/sniblock/snib/internal/outagetest"
	"github.com/sniblock/snib/zklock"
)

// TestFailures proves cells of ZooKeeper in docs/failures.md; other tests prove the rest.
func TestFailures(t *testing.T) {
	t.Parallel()
	shim := livetest.NewShim(t, "zookeeper")
	server := zktest.Single(livetest.WithEnv(t, shim.Env()...))
	createRoot(t, newStranger(t, server.Addr()), secret)
	open := func(t *testing.T) driver.Driver { return newDriver(t, []string{server.Addr()}) }
	store := outagetest.Store{Open: open, Secret: secret}
	restart := outagetest.Restarted(server)
	restart.Lost = true
	full := zktest.Single(t, "maxClientCnxns=4", "nio.sessionlessCnxnTimeout=600000")
	openFull := func(t *testing.T) driver.Driver { return newDriver(t, []string{full.Addr()}) }
	outagetest.Store{Open: openFull}.Failures(t, outagetest.Failure{Name: "FullPool", Renews: true, Begin: func(t *testing.T) func() {
		first, second := occupy(t, full.Addr()), occupy(t, full.Addr()) // beside the holder and the waiter
		return func() {
			first.Close()
			second.Close()
		}
	}})
	store.Errors(t, outagetest.Hung("answer", server)) // a session may outlive it
	store.Failures(t,
		restart,
		outagetest.Failure{Name: "Password", Renews: true, Denied: true, Begin: func(t *testing.T) func() {
			tr := newTree(t, server.Addr())
			if err := tr.AddAuth("digest", []byte("snib:another")); err != nil {
				t.Fatal(err)
			}
			setPassword := func(p string) {
				for _, path := range []string{"/snib", "/snib/held"} { // where the password is: in the lists of who may do what
					if _, err := tr.SetACL(path, zk.DigestACL(zk.PermAll, "snib", p), -1); err != nil {
						t.Error(err)
					}
				}
			}
			setPassword("another")
			return func() { setPassword(secret) }
		}},
		outagetest.Failure{Name: "FullDisk", Lost: true, Begin: func(*testing.T) func() {
			server.MayEnd() // it ends when it can't write its log
			shim.FillDisk(true)
			return func() {
				shim.FillDisk(false)
				server.Restart()
			}
		}},
	)

	// A ZooKeeper accepts any password at the login; its ACLs refuse it.
	stranger := outagetest.Store{Secret: secret, Open: func(t *testing.T) driver.Driver {
		return newDriver(t, []string{server.Addr()}, zklock.Digest("snib", "wrong"))
	}}
	stranger.Errors(t, outagetest.Failure{Name: "Stranger", Denied: true, Says: "the password may be wrong", Has: outagetest.Is(zk.ErrNoAuth)})
}

// occupy takes the place of a client. A server that is full accepts a connection, and hangs up.
func occupy(t *testing.T, addr string) (conn net.Conn) {
	t.Helper()
	livetest.Await(t, "place", func() (err error) {
		if conn, err = net.Dial("tcp", addr); err != nil {
			return err
		}
		conn.SetReadDeadline(time.Now().Add(time.Second))
		if _, err = conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		conn.Close()
		return fmt.Errorf("the server hung up: %w", err)
	})
	return conn
}
