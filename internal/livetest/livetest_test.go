package livetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A recorder is a test that records its result instead of reporting it.
type recorder struct {
	testing.TB
	skipped  string
	failed   string
	logged   string
	cleanups []func()
}

func (r *recorder) Helper()          {}
func (r *recorder) Failed() bool     { return r.failed != "" }
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) cleanup() {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
}

func (r *recorder) Logf(format string, args ...any) { r.logged += fmt.Sprintf(format, args...) }

func (r *recorder) Errorf(format string, args ...any) { r.failed += fmt.Sprintf(format, args...) }

func (r *recorder) Skipf(format string, args ...any) {
	r.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// runRecorded runs body as a test, and returns its result.
func runRecorded(t *testing.T, body func(testing.TB)) *recorder {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		body(r)
	}()
	<-done
	return r
}

func TestBinary(t *testing.T) {
	if unsupported != "" {
		t.Skip(unsupported)
	}
	tests := []struct {
		name    string
		require string
		skipped string
		failed  string
	}{
		{name: "NotRequired", skipped: "nosuchd is not installed (SNIB_REQUIRE=nosuch makes that a failure)"},
		{name: "OtherRequired", require: "redis,nosuchd",
			skipped: "nosuchd is not installed (SNIB_REQUIRE=nosuch makes that a failure)"},
		{name: "Required", require: "redis, nosuch", failed: "nosuchd is not installed, but SNIB_REQUIRE=redis, nosuch"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(requireVar, tt.require)
			r := runRecorded(t, func(t testing.TB) {
				t.Errorf("Binary = %q, want none", Binary(t, "nosuch", "nosuchd", "/nosuch/*/bin"))
			})
			if r.skipped != tt.skipped || r.failed != tt.failed {
				t.Errorf("skipped with %q, failed with %q, want %q, %q", r.skipped, r.failed, tt.skipped, tt.failed)
			}
		})
	}
}

func TestBinaryInFolder(t *testing.T) {
	if unsupported != "" {
		t.Skip(unsupported)
	}
	dir := t.TempDir()
	for _, version := range []string{"15", "17", "16"} {
		path := filepath.Join(dir, version, "bin", "nosuchd")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	want := filepath.Join(dir, "17", "bin", "nosuchd")
	if got := Binary(t, "nosuch", "nosuchd", filepath.Join(dir, "*", "bin")); got != want {
		t.Errorf("Binary = %q, want %q", got, want)
	}
}

func TestAwait(t *testing.T) {
	tries := 0
	Await(t, "third try", func() error {
		if tries++; tries < 3 {
			return errors.New("too early")
		}
		return nil
	})
	if tries != 3 {
		t.Errorf("%d tries, want 3", tries)
	}
}

func TestTail(t *testing.T) {
	if got := string(tail([]byte("short\n"))); got != "short\n" {
		t.Errorf("tail of a short text = %q, want all of it", got)
	}
	got := string(tail([]byte(strings.Repeat("line\n", 10_000))))
	if !strings.HasPrefix(got, "…\nline\n") || len(got) > 20_000 {
		t.Errorf("tail of a long text = %d bytes beginning with %q, want whole lines, and fewer", len(got), got[:10])
	}
}

// TestSlack checks that there is no slack on a machine that is never late, and that the measuring
// ends with the test: a bubble would not end before its goroutines.
func TestSlack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slack := Slack(t)
		time.Sleep(time.Second) // fake time
		if got := slack(); got != 0 {
			t.Errorf("the slack is %v, want 0", got)
		}
	})
}
