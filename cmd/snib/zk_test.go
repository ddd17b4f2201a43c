//go:build unix

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sniblock/snib/internal/livetest/zktest"
)

// TestZooKeeperScripts runs some of the common scripts on ZooKeeper, and the script
// about ZooKeeper. The other common scripts mask tokens that are clocks, or take locks
// that outlive their session.
func TestZooKeeperScripts(t *testing.T) {
	t.Parallel()
	runOnStore(t, []string{"busy", "hold"}, "zk://"+zktest.Single(t).Addr())
	s := zktest.Single(t, zktest.TLS)
	secure, _ := s.Secure()
	files := t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "password"), []byte("horse\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("zk", func(t *testing.T) {
		runScripts(t, testscript.Params{Files: []string{filepath.Join("testdata", "zk", "zk.txtar")}},
			"SNIB_URL=zk://"+s.Addr(), "ADDR="+s.Addr(), "SECURE="+secure, "CA="+s.Authority(), "FILES="+files)
	})
}
