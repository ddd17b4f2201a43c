package jobtest_test

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/sniblock/snib/internal/jobtest"
)

// A recorder is a test that only records whether it failed.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Fatalf(string, ...any) { r.failed = true; runtime.Goexit() }

// passesRising reports whether a file passes Rising.
func passesRising(t *testing.T, file string, least int) bool {
	return !fails(t, func(t testing.TB) { jobtest.Rising(t, file, least) })
}

// fails reports whether a check fails.
func fails(t *testing.T, check func(testing.TB)) bool {
	r := &recorder{TB: t}
	var done sync.WaitGroup
	done.Go(func() { check(r) })
	done.Wait()
	return r.failed
}

func TestRising(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	for text, want := range map[string]bool{
		"1\n2\n9\n":    true,
		"1\n2\n9\n11":  true,
		"1\n2\n":       false, // one token is lost
		"1\n2\n2\n":    false,
		"3\n2\n9\n":    false,
		"0\n2\n9\n":    false, // no token
		"1\n2\nthree":  false,
		"-1\n2\n9\n10": false,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := passesRising(t, file, 3); got != want {
			t.Errorf("Rising of 3 tokens in %q passes: %v, want %v", text, got, want)
		}
	}
}
