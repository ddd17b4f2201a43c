package etcdtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // for the lists of modules
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/sniblock/snib/internal/livetest"
)

// The go.mod and go.sum from which etcd and etcdctl are built. They are not a module of the
// workspace, because etcd's dependencies must not affect other modules.
var (
	//go:embed servers.mod
	modules []byte
	//go:embed servers.sum
	sums []byte
)

// programs maps the name of each program to its package.
var programs = map[string]string{
	"etcd":    "go.etcd.io/etcd/server/v3",
	"etcdctl": "go.etcd.io/etcd/etcdctl/v3",
}

// home returns the folder of the programs, and builds them if necessary. It runs
// once per process.
var home = sync.OnceValues(func() (string, error) {
	hash := sha256.New()
	hash.Write(modules)
	hash.Write(sums)
	hash.Write([]byte(runtime.Version()))
	return livetest.Kept(context.Background(), fmt.Sprintf("etcd-%.8x", hash.Sum(nil)), build)
})

// build builds the programs in the folder dir, which it creates.
func build(dir string) error {
	source, err := os.MkdirTemp("", "etcdtest-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(source) //nolint:errcheck // a folder for temporary files
	for name, text := range map[string][]byte{"go.mod": modules, "go.sum": sums} {
		if err := os.WriteFile(filepath.Join(source, name), text, 0o600); err != nil {
			return err
		}
	}
	for name, pkg := range programs {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, name), pkg)
		cmd.Dir = source
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", pkg, err, bytes.TrimSpace(out))
		}
	}
	return nil
}

// program returns the path of one of the programs. The first call builds them if they are not in
// the cache. That takes about a minute, and needs the go command and access to the modules. If they
// can't be built, program looks for an installed one. If there is none, it skips t, or fails it if
// SNIB_REQUIRE names etcd.
func program(t testing.TB, name string) string {
	t.Helper()
	dir, err := home()
	if err != nil {
		t.Logf("etcd can't be built: %v", err)
		return livetest.Binary(t, "etcd", name)
	}
	return filepath.Join(dir, name)
}
