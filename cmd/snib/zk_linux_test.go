package main

import (
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/internal/livetest/zktest"
)

// TestZooKeeperPaths checks which nodes the command makes with the parameters for clients of other
// libraries, and what it says of a path that is in use for something else.
func TestZooKeeperPaths(t *testing.T) {
	server := zktest.Single(t)
	conn, _, err := zk.Connect([]string{server.Addr()}, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	url := "zk://" + server.Addr()
	for _, tt := range []struct{ parameter, name, folder, mark string }{
		{"", "my lock", "/snib/my%20lock", "-lock-"},
		{"?literal-names=on", "my lock", "/snib/my lock", "-lock-"},
		{"?curator-read-write=on", "rw", "/snib/rw", "-__WRIT__"},
	} {
		_, stop := startHolder(t, tt.name, "-u", url+tt.parameter)
		names, _, err := conn.Children(tt.folder)
		if err != nil || len(names) != 1 || !strings.Contains(names[0], tt.mark) {
			t.Errorf("with %q, %s has the nodes %q, %v; want one with %s", tt.parameter, tt.folder, names, err, tt.mark)
		}
		stop()
	}
	for _, path := range []string{"/snib/semaphore", "/snib/semaphore/leases", "/snib/data", "/snib/data/item-0000000000"} {
		if _, err := conn.Create(path, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"semaphore": "a semaphore of Curator", "data": "belongs to no session"} {
		for _, args := range [][]string{{"run", "-n", name, "--", "true"}, {"run", name, "--", "true"}, {"wait", name},
			{"wait", "-w", "0", name}} {
			if out, code := snib(t, append([]string{args[0], "-u", url}, args[1:]...)...); code != 78 || !strings.Contains(out, want) {
				t.Errorf("%q: exit code %d, want 78 with %q: %s", args, code, want, out)
			}
		}
		if out, code := snib(t, "show", "-u", url, name); code != 0 || !strings.Contains(out, want) || !strings.Contains(out, "in use, perhaps not as a lock") {
			t.Errorf("show: exit code %d, want %q: %s", code, want, out)
		}
		if out, code := snib(t, "release", "-u", url, "--force", "--yes", name); code == 0 {
			t.Errorf("release of something that is no lock: exit code %d: %s", code, out)
		}
	}
	if out, code := snib(t, "leaks", "-u", url); code != 0 {
		t.Errorf("leaks: exit code %d, want 0: what is no lock is no leak of a lock: %s", code, out)
	}
}
