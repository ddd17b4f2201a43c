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
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// TestFailures proves cells of ZooKeeper in docs/failures.md; other tests prove the rest.
func TestFailures(t *testing.T) {
	t.Parallel()
	shim := livetest.NewShim(t, "zookeeper")
	server := zktest.Single(livetest.WithEnv(t, shim.Env()...))
	open := func(t *testing.T) driver.Driver { return newDriver(t, []string{server.Addr()}) }
	restart := func() {
		shim.FillDisk(false)
		server.Restart()
	}
	full := zktest.Single(t, "maxClientCnxns=4", "nio.sessionlessCnxnTimeout=600000")
	openFull := func(t *testing.T) driver.Driver { return newDriver(t, []string{full.Addr()}) }
	jobtest.Failures(t, openFull, jobtest.Failure{Name: "FullPool", Renews: true, Begin: func(t *testing.T) func() {
		first, second := occupy(t, full.Addr()), occupy(t, full.Addr()) // beside the holder and the waiter
		return func() {
			first.Close()
			second.Close()
		}
	}})
	jobtest.Failures(t, open,
		jobtest.Failure{Name: "Restart", Lost: true, Begin: func(*testing.T) func() {
			server.Kill()
			return restart
		}},
		jobtest.Failure{Name: "Emptied", Lost: true, Grants: true, Begin: func(t *testing.T) func() {
			tr := newTree(t, server.Addr())
			livetest.Await(t, "removal of all nodes at once", func() error { // a waiter may queue meanwhile
				var all []any
				for _, name := range tr.children("/snib/held") {
					all = append(all, &zk.DeleteRequest{Path: "/snib/held/" + name, Version: -1})
				}
				_, err := tr.Multi(append(all, &zk.DeleteRequest{Path: "/snib/held", Version: -1})...)
				return err
			})
			return func() {}
		}},
		jobtest.Failure{Name: "Password", Renews: true, Denied: true, Begin: func(t *testing.T) func() {
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
		jobtest.Failure{Name: "FullDisk", Lost: true, Begin: func(*testing.T) func() {
			server.MayEnd() // it ends when it can't write its log
			shim.FillDisk(true)
			return restart
		}},
	)
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
