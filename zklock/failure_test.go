package zklock_test

import (
	"net"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// TestFailures proves cells of ZooKeeper in docs/failures.md; other tests prove the rest.
func TestFailures(t *testing.T) {
	t.Parallel()
	shim := livetest.NewShim(t, "zookeeper")
	server := zktest.Single(livetest.WithEnv(t, shim.Env()...), "maxClientCnxns=10")
	open := func(t *testing.T) driver.Driver { return newDriver(t, []string{server.Addr()}) }
	restart := func() {
		shim.FillDisk(false)
		server.Restart()
	}
	jobtest.Failures(t, open,
		jobtest.Failure{Name: "Restart", Lost: true, Begin: func(*testing.T) func() {
			server.Kill()
			return restart
		}},
		jobtest.Failure{Name: "Emptied", Lost: true, Grants: true, Begin: func(t *testing.T) func() {
			tr := newTree(t, server.Addr())
			var remove func(path string)
			remove = func(path string) {
				for _, name := range tr.children(path) {
					remove(path + "/" + name)
				}
				_ = tr.Delete(path, -1) // a waiter may have queued again
			}
			remove("/snib/held")
			return func() {}
		}},
		jobtest.Failure{Name: "FullPool", Renews: true, Begin: func(t *testing.T) func() {
			var conns []net.Conn
			for range 10 {
				conn, err := net.Dial("tcp", server.Addr())
				if err != nil {
					t.Fatal(err)
				}
				conns = append(conns, conn)
			}
			return func() {
				for _, conn := range conns {
					conn.Close()
				}
			}
		}},
		jobtest.Failure{Name: "FullDisk", Lost: true, Begin: func(*testing.T) func() {
			server.MayEnd() // it ends when it can't write its log
			shim.FillDisk(true)
			return restart
		}},
	)
}
