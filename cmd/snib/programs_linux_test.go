package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// backendPages are the pages of the backends, with what their programs read from the environment.
var backendPages = []struct {
	page  string
	start func(t *testing.T) (env []string)
}{
	{"memlock", func(*testing.T) []string { return nil }},
	{"sqlitelock", func(t *testing.T) []string { return []string{"LOCKS_FILE=" + filepath.Join(t.TempDir(), "locks.db")} }},
	{"redislock", func(t *testing.T) []string { return []string{"REDIS_URL=redis://" + redistest.Single(t).Used().Addr()} }},
	{"redlock", func(t *testing.T) []string {
		url, nodes := startRedlock(t, 3, redistest.Password(password))
		mustSnib(t, "redlock", "init", url)
		var addrs []string
		for _, n := range nodes {
			addrs = append(addrs, n.Addr())
		}
		return []string{"REDIS_NODES=" + strings.Join(addrs, ","), "REDIS_PASSWORD=" + password}
	}},
	{"pglock", func(t *testing.T) []string { return []string{"DATABASE_URL=" + pgtest.Start(t).URL()} }},
	{"mysqllock", func(t *testing.T) []string { return []string{"DATABASE_DSN=" + mysqltest.Start(t).DSN()} }},
	{"zklock", func(t *testing.T) []string { return []string{"ZOOKEEPER=" + zktest.Single(t).Addr()} }},
	{"etcdlock", func(t *testing.T) []string { return []string{"ETCD_ENDPOINTS=" + etcdtest.Start(t).Addr()} }},
}

// TestPagePrograms compiles and runs the program at the head of the page of each backend, as it
// stands there, with a real server.
func TestPagePrograms(t *testing.T) {
	t.Parallel()
	for _, p := range backendPages {
		t.Run(p.page, func(t *testing.T) {
			head, _, _ := strings.Cut(backendPage(p.page), "\n## ")
			m := regexp.MustCompile("(?s)```go\n(package main\n.*?)```\n").FindStringSubmatch(head)
			if m == nil {
				t.Fatal("the page does not begin with a program")
			}
			newStore(t)
			env := p.start(t)
			file := filepath.Join(t.TempDir(), "main.go")
			if err := os.WriteFile(file, []byte(m[1]), 0o600); err != nil {
				t.Fatal(err)
			}
			livetest.Await(t, "answer of the store", func() error { // a busy one may be late
				run := exec.Command("go", "run", file)
				run.Env = append(os.Environ(), env...)
				out, err := run.CombinedOutput()
				if strings.Contains(string(out), driver.ErrUnavailable.Error()) {
					return fmt.Errorf("the program printed %s", out)
				}
				if err != nil || !regexp.MustCompile(`(?m)^token [1-9]\d*$`).Match(out) {
					t.Errorf("the program printed, %v:\n%s", err, out)
				}
				return nil
			})
		})
	}
}

// TestHeadingsOfBackends checks that the pages of the backends have the same headings, and not too
// many words.
func TestHeadingsOfBackends(t *testing.T) {
	const maxWords = 1500
	heading := regexp.MustCompile(`(?m)^## .*$`)
	want := heading.FindAllString(backendPage(backendPages[0].page), -1)
	for _, p := range backendPages {
		if got := heading.FindAllString(backendPage(p.page), -1); len(got) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s has the headings\n%q, want those of %s,\n%q", p.page, got, backendPages[0].page, want)
		}
		if words := len(strings.Fields(backendPage(p.page))); words > maxWords {
			t.Errorf("%s has %d words, and may have %d", p.page, words, maxWords)
		}
	}
}

func backendPage(name string) string {
	return read(filepath.Join("..", "..", "docs", "backends", name+".md"))
}
