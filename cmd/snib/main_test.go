//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sniblock/snib/internal/livetest"
)

// raceVar is the environment variable with the settings of the race detector.
const raceVar = "GORACE"

// configVar is the environment variable that names the configuration file.
const configVar = "SNIB_CONFIG"

// TestMain puts the command, and the small programs that the tests run under it, into PATH. Each
// of the latter is this test binary under another name. The command is built once, without the race
// detector, which would slow each of its many processes; its packages have tests of their own.
func TestMain(m *testing.M) {
	if os.Getenv(raceVar) == "" {
		_ = os.Setenv(raceVar, "atexit_sleep_ms=0") // else each process ends a second later
	}
	if _, set := os.LookupEnv(configVar); !set {
		_ = os.Setenv(configVar, os.DevNull) // else the tests depend on who runs them
	}
	testscript.Main(withCommand{m}, map[string]func(){
		"hold":      hold,
		"increment": increment,
		"journal":   journal,
		"mask":      mask,
		"sigs":      sigs,
		"poll":      pollCommand,
	})
}

// withCommand runs tests with the command in PATH.
type withCommand struct{ tests *testing.M }

// Run runs the tests. They name their stores, or mean the default.
func (w withCommand) Run() int {
	_ = os.Unsetenv("SNIB_URL") // an empty one is refused
	dir, err := os.MkdirTemp("", "snib")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", dir, ".")
	build.Stdout, build.Stderr = os.Stdout, os.Stderr
	if err := build.Run(); err != nil {
		panic(err)
	}
	_ = os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return w.tests.Run()
}

func TestScripts(t *testing.T) {
	runScripts(t, testscript.Params{Dir: filepath.Join("testdata", "script")})
}

// runScripts runs the scripts that p names. env is added to their environment, "NAME=value" each.
func runScripts(t *testing.T, p testscript.Params, env ...string) {
	t.Helper()
	p.RequireExplicitExec = true
	p.UpdateScripts = os.Getenv("UPDATE") != ""
	p.Setup = func(e *testscript.Env) error {
		e.Setenv("XDG_STATE_HOME", filepath.Join(e.WorkDir, "state"))
		e.Setenv(raceVar, os.Getenv(raceVar))
		e.Vars = append(e.Vars, env...)
		return nil
	}
	p.Condition = func(cond string) (bool, error) {
		switch cond {
		case "root":
			return os.Geteuid() == 0, nil
		case "sqlite": // otherwise env names another store
			return len(env) == 0, nil
		case "service":
			return slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "SNIB_URL=http") }), nil
		}
		return false, fmt.Errorf("unknown condition %q", cond)
	}
	if p.Cmds == nil {
		p.Cmds = make(map[string]func(*testscript.TestScript, bool, []string))
	}
	p.Cmds["exits"] = checkExit
	testscript.Run(t, p)
}

// checkExit implements the script command "exits CODE COMMAND…". It runs a command, and checks
// its exit code and that standard error has at most one line, without the password and the user
// that the tests of Redis use.
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
	stderr := ts.ReadFile("stderr")
	if got != want {
		ts.Fatalf("exit code = %d, want %d", got, want)
	}
	if strings.Count(stderr, "\n") > 1 || strings.Contains(stderr, "goroutine ") {
		ts.Fatalf("standard error is more than a line:\n%s", stderr)
	}
	if strings.Contains(stderr, "horse") || strings.Contains(stderr, "alice") {
		ts.Fatalf("standard error has a password or a user in it:\n%s", stderr)
	}
}

// testTimeout is how long the tests wait for an event that should come at once.
const testTimeout = livetest.Patience

// poll calls ok until it returns true, for at most testTimeout.
func poll(ok func() bool) bool { return pollFor(testTimeout, ok) }

func pollFor(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); ; {
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

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func die(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(99)
}

// hold is the program "hold READY STOP". It creates the file READY, and ends when the file STOP
// exists. It outlasts any test, even on a slow machine.
func hold() {
	if err := os.WriteFile(os.Args[1], nil, 0o600); err != nil {
		die("hold: %v", err)
	}
	if !pollFor(5*testTimeout, func() bool { return exists(os.Args[2]) }) {
		die("hold: nobody made %s", os.Args[2])
	}
}

// increment is the program "increment FILE". It adds one to the number in FILE, in a way that
// loses increments without a lock.
func increment() {
	text, err := os.ReadFile(os.Args[1])
	n, err2 := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || err2 != nil {
		die("increment: %v %v", err, err2)
	}
	if err := os.WriteFile(os.Args[1], []byte(strconv.Itoa(n+1)), 0o600); err != nil {
		die("increment: %v", err)
	}
}

// journal is the program "journal LOG DURATION [FILE]". It appends "begin PID TOKEN" to LOG.
// After DURATION, or when FILE exists, it appends "end PID TOKEN".
func journal() {
	log, err := os.OpenFile(os.Args[1], os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		die("journal: %v", err)
	}
	d, err := time.ParseDuration(os.Args[2])
	if err != nil {
		die("journal: %v", err)
	}
	fmt.Fprintf(log, "begin %d %s\n", os.Getpid(), os.Getenv("SNIB_TOKEN"))
	pollFor(d, func() bool { return len(os.Args) > 3 && exists(os.Args[3]) }) // the work
	fmt.Fprintf(log, "end %d %s\n", os.Getpid(), os.Getenv("SNIB_TOKEN"))
}

// sigs is the program "sigs LOG [SIGNAL]". It appends "ready" and its pid to LOG, and then the
// name of each signal that it receives. It ends on SIGNAL.
func sigs() {
	log, err := os.OpenFile(os.Args[1], os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		die("sigs: %v", err)
	}
	ch := make(chan os.Signal, 16)
	signal.Notify(ch, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGWINCH, syscall.SIGCONT)
	fmt.Fprintln(log, "ready", os.Getpid())
	for s := range ch {
		fmt.Fprintln(log, s)
		if len(os.Args) > 2 && s.String() == os.Args[2] {
			return
		}
	}
}

// pollCommand is the program "poll PATTERN COMMAND…". It runs COMMAND until its output matches
// PATTERN, and prints that output.
func pollCommand() {
	pattern := regexp.MustCompile(os.Args[1])
	var out []byte
	ok := poll(func() bool {
		out, _ = exec.Command(os.Args[2], os.Args[3:]...).CombinedOutput()
		return pattern.Match(out)
	})
	if os.Stdout.Write(out); !ok {
		die("poll: no match for %s", pattern)
	}
}

// mask copies standard input, and replaces everything that differs from run to run.
func mask() {
	rules := []struct{ pattern, with string }{
		{`"(held|left|waited)":( ?)[0-9.]+`, `"$1":${2}SECONDS`},
		{`"pid":( ?)\d+`, `"pid":${1}PID`},
		{`"host":( ?)"[^"]*"`, `"host":${1}"HOST"`},
		{`s[A-Z2-7]{25}`, `ID`},
		{`\b[0-9a-f]{32}\b`, `DIGEST`},
		{`\b\d{16}\b`, `TOKEN`},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z`, `TIME`},
		{`\S+ pid \d+`, `HOST pid PID`},
		{` by [^\s)"]+([)"])`, ` by USER$1`},
		{`\b(\d+ms|\d+s|\d+m\d\ds)\b`, `DURATION`},
		{`sqlite:\S*?/locks\.db|(rediss?(\+\w+)?|redlocks?|postgres|mysql|zks?|etcds?|https?)://[^"\s]+`, `STORE`},
		{`  +`, `  `},
	}
	text, err := io.ReadAll(bufio.NewReader(os.Stdin))
	if err != nil {
		die("mask: %v", err)
	}
	for _, r := range rules {
		text = regexp.MustCompile(r.pattern).ReplaceAll(text, []byte(r.with))
	}
	os.Stdout.Write(text)
}
