package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

// TestServeFence has two replicas guard resources, in each kind of database. A mark
// outlives the replica that has made it, the other one knows it, and it only goes up.
func TestServeFence(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) string{
		"SQLite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "locks %20#.db") },
		"Postgres": func(t *testing.T) string { return pgtest.Start(t).URL() },
		"MySQL":    func(t *testing.T) string { return mysqlURL(mysqltest.Start(t).Addr()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := start(t)
			doomed, first := startService(t, store)
			_, second := startService(t, store)
			var all sync.WaitGroup
			for _, url := range []string{first, second} { // both find that there is no table yet
				all.Go(func() { checkFence(t, url, "disk", "alice", 5, 204) })
			}
			all.Wait()
			doomed.kill()
			_, first = startService(t, store)
			for _, url := range []string{first, second} {
				checkFence(t, url, "disk", "alice", 5, 204)
				checkFence(t, url, "disk", "alice", 4, 409)
				checkFence(t, url, "disk", "bob", 5, 409)
			}
			checkFence(t, second, "tape", "alice", 1, 204)

			for token := range 20 {
				all.Go(func() { // in whatever order
					url := []string{first, second}[token%2]
					postTo(t, url+"/v1/fence", fmt.Sprintf(`{"resource":"disk","id":%q,"token":%d}`, longID(fmt.Sprint("o", token)), 100+token))
				})
			}
			all.Wait()
			checkFence(t, first, "disk", "o18", 118, 409)
			checkFence(t, second, "disk", "o19", 119, 204)
		})
	}
}

// checkFence asks a service to let a hold in to a resource, and checks the status of the answer.
func checkFence(t *testing.T, url, resource, id string, token uint64, want int) {
	t.Helper()
	status, answer := postTo(t, url+"/v1/fence", fmt.Sprintf(`{"resource":%q,"id":%q,"token":%d}`, resource, longID(id), token))
	if status != want {
		t.Errorf("%s with the id %s and the token %d: %d %s, want %d", resource, id, token, status, answer, want)
	}
}

// longID returns an id that is as long as the service demands.
func longID(name string) string { return name + strings.Repeat("-", max(0, 20-len(name))) }
