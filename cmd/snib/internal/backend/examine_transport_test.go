package backend

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTransportFindings checks the findings that follow from the URL alone, as "verdict check".
func TestTransportFindings(t *testing.T) {
	t.Setenv("PGPASSWORD", "")
	t.Setenv("PGPASSFILE", "/nonexistent")
	t.Setenv("PGSSLMODE", "")
	dir := t.TempDir()
	closed, open := filepath.Join(dir, "closed"), filepath.Join(dir, "open")
	for file, mode := range map[string]os.FileMode{closed: 0o600, open: 0o644} {
		if err := os.WriteFile(file, []byte("horse"), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		url  string
		want []string // the findings that are not Good
	}{
		{"redis://alice:horse@localhost", nil},
		{"redis://localhost", []string{"note access"}},
		{"redis://:horse@127.0.0.1", nil},
		{"redis://:horse@[::1]:7", nil},
		{"redis://:horse@cache.example", []string{"note transport"}},
		{"redis://cache.example", []string{"note access", "note transport"}},
		{"rediss://:horse@cache.example", nil},
		{"rediss://:horse@cache.example?insecure=on", []string{"note transport"}},
		{"redis://localhost?password-file=" + closed, nil},
		{"redis://localhost?password-file=" + open, []string{"unmet secret"}},
		{"redis+sentinel://:horse@localhost/main?sentinel-password-file=" + open, []string{"unmet secret"}},
		{"redis+cluster://localhost,cache.example", []string{"note access", "note transport"}},
		{"redlock://a.example,b.example,c.example", []string{"note access", "note transport"}},
		{"rediss://:horse@cache.example?cert=" + closed + "&key=" + open, []string{"unmet secret"}},
		{"zk://alice:horse@localhost", nil}, // the server is asked whether it lets others in
		{"zk://alice:horse@zoo.example", []string{"note transport"}},
		{"zks://alice:horse@zoo.example?insecure=on", []string{"note transport"}},
		{"etcd://localhost", nil},
		{"etcd://etcd.example", []string{"note transport"}},
		{"etcds://root:horse@etcd.example", nil},
		{"postgres://alice:horse@localhost/app", nil},
		{"postgres://alice@localhost/app", []string{"note access"}},
		{"postgres://alice@/app?host=/var/run/postgresql", nil},
		{"postgres://alice:horse@db.example/app", []string{"note transport"}}, // sslmode=prefer
		{"postgres://alice:horse@db.example/app?sslmode=disable", []string{"note transport"}},
		{"postgres://alice:horse@db.example/app?sslmode=require", []string{"note transport"}},
		{"postgres://alice:horse@db.example/app?sslmode=verify-full", nil},
		{"postgres://alice@localhost/app?password-file=" + closed, nil},
		{"postgres://alice@localhost/app?password-file=" + open, []string{"unmet secret"}},
		{"postgres://alice:horse@localhost/app?passfile=" + open, []string{"unmet secret"}},
		{"mysql://alice@localhost/app?password-file=" + closed, nil},
		{"mysql://alice@localhost/app?password-file=" + open, []string{"unmet secret"}},
		{"mysql://alice:horse@localhost/app", nil},
		{"mysql://alice@localhost/app", []string{"note access"}},
		{"mysql://alice:horse@db.example/app", []string{"note transport"}},
		{"mysql://alice:horse@db.example/app?tls=preferred", []string{"note transport"}},
		{"mysql://alice:horse@db.example/app?tls=skip-verify", []string{"note transport"}},
		{"mysql://alice:horse@db.example/app?tls=true", nil},
	}
	for _, tt := range tests {
		at, err := resolve(tt.url)
		if err != nil {
			t.Errorf("%s: %v", tt.url, err)
			continue
		}
		var got []string
		for _, f := range at.transport.findings() {
			if f.Value == "" || (f.Verdict == Good) != (f.Advice == "") || strings.Contains(f.Value+f.Advice, "horse") {
				t.Errorf("%s: bad finding: %+v", tt.url, f)
			}
			if f.Verdict != Good {
				got = append(got, string(f.Verdict)+" "+f.Check)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: findings = %q, want %q", tt.url, got, tt.want)
		}
	}
}
