package jobtest_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/memlock"
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

// Contenders leave a file that passes. A token that is appended without the lock makes it fail.
func TestContend(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	d := memlock.New()
	defer d.Close()
	const n, rounds = 4, 20
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			req := driver.Request{Name: "contended", ID: strings.Repeat("x", i+1) + " ", TTL: time.Minute}
			if err := (jobtest.Job{Role: "contend", Req: req, Rounds: rounds, File: file}).Do(t.Context(), d); err != nil {
				t.Errorf("contend = %v", err)
			}
		})
	}
	all.Wait()
	jobtest.Rising(t, file, n*rounds)
	if err := jobtest.Append(file, 1); err != nil {
		t.Fatal(err)
	}
	if passesRising(t, file, n*rounds) {
		t.Error("Rising passes with a token that is too low at the end")
	}
}

// A holder renews its lease, and releases it when it is told to end.
func TestHold(t *testing.T) { synctest.Test(t, testHold) }

func testHold(t *testing.T) {
	d := memlock.New()
	defer d.Close()
	req := driver.Request{Name: "held", ID: "a", TTL: 400 * time.Millisecond}
	ctx, end := context.WithTimeout(t.Context(), 4*req.TTL)
	defer end()
	done := make(chan error, 1)
	go func() { done <- (jobtest.Job{Role: "hold", Req: req}).Do(ctx, d) }()
	time.Sleep(3 * req.TTL) // longer than a lease that is not renewed
	late := req
	late.ID = "b"
	l, err := d.Acquire(t.Context(), late)
	if err != nil {
		t.Fatal(err)
	}
	if ctx.Err() == nil {
		t.Errorf("granted %v before the holder was told to end", l.Grant().Token)
	}
	if err := <-done; err != nil {
		t.Errorf("hold = %v", err)
	}
	if err := (jobtest.Job{Role: "sleep"}).Do(t.Context(), d); err == nil {
		t.Error("a role that there is not = nil")
	}
}

func TestHandOvers(t *testing.T) {
	one := []jobtest.Hold{{Got: 0, Left: 100}, {Got: 130, Left: 200}, {Got: 460, Left: 500}}
	two := []jobtest.Hold{{Got: 250, Left: 300}, {Got: 310, Left: 400}, {Got: 490, Left: 600}}
	took, overlaps := jobtest.HandOvers(one, two)
	if want := []time.Duration{-10, 50, 60}; !slices.Equal(took, want) || overlaps != 1 {
		t.Errorf("HandOvers = %v, %d overlaps, want %v, 1", took, overlaps, want)
	}
}
