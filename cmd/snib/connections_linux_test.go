package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// TestConnections counts the connections of a snib run that holds a lock, and of one that waits.
// docs/stores.md has their numbers.
func TestConnections(t *testing.T) {
	t.Parallel()
	page := read(filepath.Join("..", "..", "docs", "stores.md"))
	tests := []struct {
		store string // as the page calls it
		start func(t *testing.T) (url string)
	}{
		{"Redis", func(t *testing.T) string { return "redis://" + redistest.Single(t).Used().Addr() }},
		{"Redlock, 3 nodes", func(t *testing.T) string {
			url, _ := startRedlock(t, 3, redistest.Password(password))
			mustSnib(t, "redlock", "init", url)
			return url
		}},
		{"PostgreSQL", func(t *testing.T) string { return pgtest.Start(t).URL() }},
		{"MariaDB", func(t *testing.T) string { return mysqlURL(mysqltest.Start(t).Addr()) }},
		{"ZooKeeper", func(t *testing.T) string { return "zk://" + zktest.Single(t).Addr() }},
		{"etcd, 3 members", func(t *testing.T) string { return "etcd://" + strings.Join(etcdtest.Cluster(t, 3).Addrs(), ",") }},
	}
	for _, tt := range tests {
		t.Run(tt.store, func(t *testing.T) {
			cells := regexp.MustCompile(`(?m)^\| ` + tt.store + ` \| ([0-9 or]+) \| ([0-9 or]+) \|$`).FindStringSubmatch(page)
			if cells == nil {
				t.Fatalf("the page has no row for %s", tt.store)
			}
			newStore(t)
			setenv(t, "SNIB_URL", tt.start(t))
			holder := start(t, "snib", "run", "deploy", "--", "sh", "-c", "echo held; exec sleep 600")
			holder.awaitOutput("held")
			checkConnections(t, "a holder", holder.Process.Pid, cells[1])
			waiter := start(t, "snib", "run", "deploy", "--", "true")
			checkConnections(t, "a waiter", waiter.Process.Pid, cells[2])
			checkConnections(t, "a holder while another one waits", holder.Process.Pid, cells[1])
		})
	}
}

// checkConnections checks that a process keeps a number of connections that the page has, such as
// "2 or 3". While it opens the store, it may have others.
func checkConnections(t *testing.T, who string, pid int, stated string) {
	t.Helper()
	want := strings.Split(stated, " or ")
	const settled = time.Second // the last connection, for messages, is opened after 200 ms
	began := time.Now()
	livetest.Await(t, fmt.Sprintf("%s connections of %s, as docs/stores.md says", stated, who), func() error {
		got := countConnections(pid)
		if !slices.Contains(want, strconv.Itoa(got)) {
			began = time.Now()
		}
		if since := time.Since(began); since < settled {
			return fmt.Errorf("%d connections, for %v", got, since)
		}
		return nil
	})
}

// countConnections returns how many TCP connections a process has established.
func countConnections(pid int) int {
	own := map[string]bool{}
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)) // empty once the process has ended
	for _, fd := range fds {
		target, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			own[strings.TrimSuffix(inode, "]")] = true
		}
	}
	const state, inode, established = 3, 9, "01" // fields of proc_pid_net(5)
	found := map[string]bool{}                   // the kernel may list a connection twice
	for _, file := range []string{"tcp", "tcp6"} {
		for line := range strings.Lines(read(fmt.Sprintf("/proc/%d/net/%s", pid, file))) {
			if fields := strings.Fields(line); len(fields) > inode && fields[state] == established && own[fields[inode]] {
				found[fields[inode]] = true
			}
		}
	}
	return len(found)
}
