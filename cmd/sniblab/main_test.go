package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sniblock/snib/internal/livetest"
)

// TestMain puts the command into PATH. It is this test binary under another name, so -race watches
// it.
func TestMain(m *testing.M) {
	if os.Getenv("GORACE") == "" {
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // else each process ends a second later
	}
	testscript.Main(m, map[string]func(){"sniblab": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"), RequireExplicitExec: true, UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", os.Getenv("GORACE"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": checkExit},
	})
}

// checkExit implements the script command "exits CODE COMMAND…". It runs a command, and checks
// its exit code and that standard error has at most one line.
func checkExit(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if stderr := ts.ReadFile("stderr"); got != want || strings.Contains(stderr, "goroutine ") {
		ts.Fatalf("exit code = %d, want %d:\n%s", got, want, stderr)
	}
}

// poll calls ok until it returns true, for at most livetest.Patience.
func poll(ok func() bool) bool {
	for end := time.Now().Add(livetest.Patience); ; {
		began := time.Now()
		if ok() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		time.Sleep(livetest.PollPause(time.Since(began))) // polls what no other process announces
	}
}
