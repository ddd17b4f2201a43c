//go:build mutants

package mutant

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// all has the mutants of all lists.
var all = slices.Concat(mutants, cmdSafetyMutants, coreSafetyMutants, etcdMutants, fenceMutants, leaderMutants,
	metricsMutants, mysqlSafetyMutants, nemesisMutants, operationsMutants, postgresSafetyMutants, redisSafetyMutants,
	redlockMutants, redlockSafetyMutants, sqliteSafetyMutants, zketcdSafetyMutants, zookeeperMutants)

// share makes TestMutants run one mutant of that many, chosen at random.
var share = flag.Int("share", 1, "run one mutant of so many, chosen at random")

func TestMutants(t *testing.T) {
	root := rootOf(t)
	for _, m := range all {
		if rand.IntN(*share) > 0 {
			continue
		}
		t.Run(m.breaks, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && m.startsServers(t, root) {
				t.Skip("its tests start servers")
			}
			out, err := m.test(t, root)
			var exit *exec.ExitError
			switch {
			case err == nil:
				t.Errorf("%s: no test of %q noticed\n%s", m.breaks, m.run, out)
			case !errors.As(err, &exit):
				t.Fatalf("go test: %v", err)
			case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
				t.Errorf("%s: the mutant does not compile\n%s", m.breaks, out)
			case !strings.Contains(out, "--- FAIL") && !strings.Contains(out, "panic: ") && !strings.Contains(out, "DATA RACE"):
				t.Errorf("%s: go test failed, but no test did\n%s", m.breaks, out)
			}
		})
	}
}

func rootOf(t *testing.T) string {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// code returns the contents of the file to change. The text to change occurs in it once.
func (m mutant) code(t *testing.T, root string) string {
	code, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(code), m.old); n != 1 {
		t.Fatalf("%s: the code to change stands %d times in %s, want once:\n%s", m.breaks, n, m.file, m.old)
	}
	return string(code)
}

// test runs the tests of the mutant's package on the changed file.
func (m mutant) test(t *testing.T, root string) (string, error) {
	file, code := filepath.Join(root, m.file), m.code(t, root)
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "mutant"+filepath.Ext(m.file)), filepath.Join(dir, "overlay.json")
	write := func(name string, data []byte) {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(changed, []byte(strings.Replace(code, m.old, m.new, 1)))
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		t.Fatal(err)
	}
	write(overlay, list)
	timeout := "20s" // some mutants hang
	if m.startsServers(t, root) {
		timeout = "90s"
	}
	args := []string{"test", "-overlay", overlay, "-timeout", timeout, "-run", m.run}
	if m.race {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, ".")...)
	cmd.Dir = m.dir(root)
	if m.long {
		cmd.Env = append(cmd.Environ(), "SNIB_LONG=1")
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// isGo reports whether the file to change is Go. Other files are embedded.
func (m mutant) isGo() bool { return filepath.Ext(m.file) == ".go" }

// dir returns the folder whose tests must notice.
func (m mutant) dir(root string) string {
	return filepath.Join(root, cmp.Or(m.pkg, filepath.Dir(m.file)))
}

// startsServers reports whether the mutant's tests start servers: whether they import a package
// below internal/livetest.
func (m mutant) startsServers(t *testing.T, root string) bool {
	dir := m.dir(root)
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
