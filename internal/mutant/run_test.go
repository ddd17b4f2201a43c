//go:build mutants

package mutant

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestMutants(t *testing.T) {
	s := newSource()
	for _, m := range all {
		file, code, err := s.change(m)
		t.Run(m.name(), func(t *testing.T) {
			t.Parallel()
			if err != nil {
				t.Fatal(err)
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
	// Some mutants hang: for them, the time limit is what notices.
	cmd := exec.Command("go", "test", "-vet=off", "-overlay", overlay, "-timeout", "60s", "-run", m.pattern(), ".")
	cmd.Dir = filepath.Join("..", "..", m.testDir())
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
