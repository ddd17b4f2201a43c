package backend

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSecretFindings checks that doctor looks at each file with a secret that a URL names.
func TestSecretFindings(t *testing.T) {
	open := filepath.Join(t.TempDir(), "open")
	t.Setenv("PGPASSFILE", "/nonexistent")
	for _, url := range []string{
		"redis://localhost?password-file=" + open,
		"redis+sentinel://:horse@localhost/main?sentinel-password-file=" + open,
		"rediss://:horse@cache.example?cert=/nonexistent&key=" + open,
		"https://locks.example?token-file=" + open,
		"postgres://alice@localhost/app?password-file=" + open,
		"postgres://alice:horse@localhost/app?passfile=" + open,
		"mysql://alice@localhost/app?password-file=" + open,
	} {
		for mode, want := range map[os.FileMode]int{0o600: 0, 0o640: 1, 0o644: 1} {
			if err := os.WriteFile(open, []byte("horse"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(open, mode); err != nil {
				t.Fatal(err)
			}
			at, err := resolve(url)
			if err != nil {
				t.Fatalf("%s: %v", url, err)
			}
			got := secretFindings(at.secrets)
			if len(got) != want || want == 1 && (got[0].Verdict != Unmet || strings.Contains(got[0].Advice, "horse")) {
				t.Errorf("%s, mode %#o: findings = %+v, want %d that are unmet", url, mode, got, want)
			}
		}
	}
}
