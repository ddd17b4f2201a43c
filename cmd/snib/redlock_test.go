//go:build unix

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sniblock/snib/internal/livetest/redistest"
)

// startRedlock starts independent servers, and returns the URL of all of them.
func startRedlock(t *testing.T, n int, conf ...string) (url string, nodes []*redistest.Node) {
	t.Helper()
	var hosts []string
	for range n {
		node := redistest.Single(t, conf...)
		nodes, hosts = append(nodes, node), append(hosts, node.Addr())
	}
	return "redlock://:" + encoded + "@" + strings.Join(hosts, ","), nodes
}

// TestRedlockScripts runs the common scripts that need no shared locks.
func TestRedlockScripts(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"run", "lock"} {
		// Each script has its own servers: a lock that one leaves taken would
		// not be free for the next.
		t.Run(name, func(t *testing.T) {
			url, _ := startRedlock(t, 3, redistest.Password(password))
			url += "?max-ttl=1h"
			mustSnib(t, "redlock", "init", url)
			runScripts(t, testscript.Params{Files: []string{filepath.Join("testdata", "script", name+".txtar")}},
				"SNIB_URL="+url)
		})
	}
}

// TestRedlock runs the scripts about Redlock. Each has five servers of its own in its
// environment. The commands down and up stop and start some of them.
func TestRedlock(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob(filepath.Join("testdata", "redlock", "*.txtar"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("scripts: %v, %v", scripts, err)
	}
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".txtar"), func(t *testing.T) {
			url, nodes := startRedlock(t, 5, redistest.Password(password))
			some := func(do func(*redistest.Node)) func(*testscript.TestScript, bool, []string) {
				return func(_ *testscript.TestScript, _ bool, args []string) {
					for _, arg := range args {
						do(nodes[arg[0]-'0'])
					}
				}
			}
			p := testscript.Params{Files: []string{script}, Cmds: map[string]func(*testscript.TestScript, bool, []string){
				"down": some(func(n *redistest.Node) { n.Kill() }),
				"up":   some(func(n *redistest.Node) { n.Restart() }),
			}}
			secure := redistest.Single(t, redistest.TLS, redistest.Password(password))
			runScripts(t, p, "SNIB_URL="+url, "NODES="+url[strings.Index(url, "@")+1:], "NODE0="+nodes[0].Addr(), "NODE1="+nodes[1].Addr(), "SECURE="+secure.Addr(),
				"CA="+authorityFile(secure), "ENCODED="+encoded)
		})
	}
}
