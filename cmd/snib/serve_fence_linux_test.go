package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// TestServeFence has two replicas guard resources, in each kind of place for their marks. A mark
// outlives the replica that has made it, the other one knows it, and it only goes up.
func TestServeFence(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) (store string, flags []string){
		"SQLite": func(t *testing.T) (string, []string) {
			return "sqlite:" + filepath.Join(t.TempDir(), "locks %20#.db"), nil
		},
		"Postgres": func(t *testing.T) (string, []string) { return pgtest.Start(t).URL(), nil },
		"MySQL":    func(t *testing.T) (string, []string) { return mysqlURL(mysqltest.Start(t).Addr()), nil },
		"RedisAndSQLite": func(t *testing.T) (string, []string) {
			return "redis://" + redistest.Single(t).Used().Addr(), []string{"--fence", "sqlite:" + filepath.Join(t.TempDir(), "marks.db")}
		},
		"Folder": func(t *testing.T) (string, []string) {
			return "sqlite:" + filepath.Join(t.TempDir(), "locks.db"), []string{"--fence", "dir:" + t.TempDir()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, flags := start(t)
			doomed, first := startService(t, store, flags...)
			_, second := startService(t, store, flags...)
			var all sync.WaitGroup
			for _, url := range []string{first, second} { // both find that there is no table yet
				all.Go(func() { checkFence(t, url, "disk", "alice", 5, 200) })
			}
			all.Wait()
			doomed.kill()
			_, first = startService(t, store, flags...)
			for _, url := range []string{first, second} {
				checkFence(t, url, "disk", "alice", 5, 200)
				checkFence(t, url, "disk", "alice", 4, 409)
				checkFence(t, url, "disk", "bob", 5, 409)
			}
			checkFence(t, second, "tape", "alice", 1, 200)

			for token := range 20 {
				all.Go(func() { // in whatever order
					url := []string{first, second}[token%2]
					postTo(t, url+"/v1/fence", fmt.Sprintf(`{"resource":"disk","id":%q,"token":%d}`, longID(fmt.Sprint("o", token)), 100+token))
				})
			}
			all.Wait()
			checkFence(t, first, "disk", "o18", 118, 409)
			checkFence(t, second, "disk", "o19", 119, 200)
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

// TestServeFencePlaces checks what is said of places that can't keep marks.
func TestServeFencePlaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := "sqlite:" + filepath.Join(dir, "locks.db")
	for _, tt := range []struct {
		place, want string
		code        int
	}{
		{"redis://127.0.0.1:1", "can't keep marks for good; there are sqlite:PATH,", 78},
		{"memory:", "can't keep marks for good", 78},
		{"dir:" + filepath.Join(dir, "missing"), "there is no such folder", 78},
		{"sqlite:" + filepath.Join(dir, "missing", "marks.db"), "its folder does not exist", 78},
		{"/var/lib/marks", "it has no scheme", 78},
	} {
		out, code := snib(t, "serve", "--listen", "127.0.0.1:0", "--url", store, "--fence", tt.place)
		if code != tt.code || !strings.Contains(out, tt.want) {
			t.Errorf("serve --fence %s = %d, %s; want %d and %q", tt.place, code, out, tt.code, tt.want)
		}
	}
	_, url := startService(t, "memory:")
	checkFence(t, url, "disk", "alice", 5, 404)
}
