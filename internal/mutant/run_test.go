//go:build mutants

package mutant

import (
	"encoding/json"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// share makes TestMutants run one mutant of that many, chosen at random.
var share = flag.Int("share", 1, "run one mutant of so many, chosen at random")

func TestMutants(t *testing.T) {
	s := newSource()
	for _, m := range all {
		if rand.IntN(*share) > 0 {
			continue
		}
		file, code, err := s.change(m)
		t.Run(m.name(), func(t *testing.T) {
			t.Parallel()
			if err != nil {
				t.Fatal(err)
			}
			if testing.Short() && startsServers(t, m.dir()) {
				t.Skip("its tests start servers")
			}
			out, err := m.test(t, file, code)
			var exit *exec.ExitError
			switch {
			case err == nil:
				t.Errorf("none of %q noticed\n%s", m.tests, out)
			case !errors.As(err, &exit):
				t.Fatalf("go test: %v", err)
			case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
				t.Errorf("the mutant does not compile\n%s", out)
			case !strings.Contains(out, "--- FAIL") && !strings.Contains(out, "panic: "):
				t.Errorf("go test failed, but no test did\n%s", out)
			}
		})
	}
}

// dir returns the folder of the tests, from here.
func (m mutant) dir() string { return filepath.Join("..", "..", m.testDir()) }

// test runs the tests of m with code as the content of file.
func (m mutant) test(t *testing.T, file, code string) (string, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "mutant"+filepath.Ext(file)), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(changed, []byte(code), 0o600), os.WriteFile(overlay, list, 0o600)); err != nil {
		t.Fatal(err)
	}
	timeout := "20s" // some mutants hang
	if startsServers(t, m.dir()) {
		timeout = "90s"
	}
	cmd := exec.Command("go", "test", "-overlay", overlay, "-timeout", timeout, "-run", m.pattern(), ".")
	cmd.Dir = m.dir()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// pattern returns the tests as "go test -run" wants them.
func (m mutant) pattern() string {
	tests := strings.Fields(m.tests)
	for i, test := range tests {
		parts := strings.Split(test, "/")
		for j, part := range parts {
			parts[j] = "^" + regexp.QuoteMeta(part) + "$"
		}
		tests[i] = strings.Join(parts, "/")
	}
	return strings.Join(tests, "|")
}

// startsServers reports whether the tests in dir start servers: whether they import a package below
// internal/livetest.
func startsServers(t *testing.T, dir string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("tests in %s: %q, %v", dir, files, err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(code), `"github.com/sniblock/snib/internal/livetest/`)
	})
}
