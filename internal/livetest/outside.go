package livetest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
)

// Outside calls use with a TB for servers of a program that is not a test, such as a benchmark. It
// returns the error of use, or the failure that was reported to the TB. The servers end when use
// has returned. Only this package and those of the servers may use the TB, and only in the
// goroutine of use where they may end it.
func Outside(use func(testing.TB) error) (err error) {
	t := new(outside)
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
		for _, f := range slices.Backward(t.cleanups) {
			f()
		}
		err = errors.Join(append([]error{err}, t.errs...)...)
	}()
	return use(t)
}

// A MissingError is the error of [Outside] if a server is not installed.
type MissingError struct {
	Server string // as in SNIB_REQUIRE, such as "redis"
	Why    string
}

func (e *MissingError) Error() string { return e.Why }

// A failure is what the methods of outside panic with that end a test.
type failure struct{ error }

// An outside has the methods of TB that packages for servers call.
type outside struct {
	testing.TB // nil

	mu       sync.Mutex
	cleanups []func()
	errs     []error
}

func (t *outside) Helper()             {}
func (t *outside) Failed() bool        { return false }
func (t *outside) Logf(string, ...any) {}

func (t *outside) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.errs = append(t.errs, fmt.Errorf(format, args...))
}

func (t *outside) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }
func (t *outside) Skipf(format string, args ...any)  { t.Fatalf(format, args...) }

func (t *outside) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

func (t *outside) TempDir() string {
	dir, err := os.MkdirTemp("", "snib-")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
