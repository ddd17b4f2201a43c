//go:build unix

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// TestEtcdScripts runs some of the common scripts on etcd, and the script about etcd. The other
// common scripts mask tokens that are clocks, or take locks that outlive their session.
func TestEtcdScripts(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	runOnStore(t, []string{"busy", "hold"}, "etcd://"+s.Addr())
	locked, secure := etcdtest.Start(t), etcdtest.Start(t, etcdtest.Secure)
	locked.RequireLogin()
	files := t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "password"), []byte(etcdtest.Password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("etcd", func(t *testing.T) {
		runScripts(t, testscript.Params{Files: []string{filepath.Join("testdata", "etcd", "etcd.txtar")}},
			"SNIB_URL=etcd://"+s.Addr(), "ADDR="+s.Addr(), "LOCKED="+locked.Addr(), "PASSWORD="+etcdtest.Password,
			"SECURE="+secure.Addr(), "CA="+secure.Certificate(), "FILES="+files)
	})
}
