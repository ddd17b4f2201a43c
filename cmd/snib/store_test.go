//go:build unix

package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// checkFailure checks how a command fails: with that exit code, and with one line
// that contains all of want. It returns what the command says.
func checkFailure(t *testing.T, cmd *exec.Cmd, code int, want ...string) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != code {
		t.Errorf("%v: %v, want exit code %d", cmd.Args, err, code)
	}
	text := string(out)
	if strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "snib: ") {
		t.Errorf("%v says %q, want one line that begins with snib:", cmd.Args, text)
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%v says %q, want %q in it", cmd.Args, text, w)
		}
	}
	return text
}

// TestNotAllowed runs commands as a user without the permissions for them: exit code 77.
func TestNotAllowed(t *testing.T) {
	dir := newStore(t)
	bin := filepath.Join(dir, "snib")
	copyProgram(t, bin)
	run := func(url string) *exec.Cmd {
		cmd := command(t, bin, "run", "-u", url, "name", "--", "true")
		cmd.Dir = "/"
		if os.Geteuid() == 0 { // root is never refused
			const nobody = 65534
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		return cmd
	}
	try := run("sqlite:" + filepath.Join(dir, "none.db"))
	try.Args = []string{bin, "--version"}
	if out, err := try.CombinedOutput(); err != nil {
		t.Skipf("another user can't run the test program: %v: %s", err, out)
	}
	sealed := filepath.Join(dir, "sealed")
	if err := os.Mkdir(sealed, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Run("ReadOnlyFolder", func(t *testing.T) {
		checkFailure(t, run("sqlite:"+sealed+"/new.db"), 77, "choose a file that you may write")
	})
	t.Run("UnreadableFile", func(t *testing.T) {
		file := filepath.Join(dir, "mine.db")
		mustSnib(t, "run", "-u", "sqlite:"+file, "name", "--", "true")
		if err := os.Chmod(file, 0); err != nil {
			t.Fatal(err)
		}
		checkFailure(t, run("sqlite:"+file), 77, "choose a file that you may write")
	})
	t.Run("StateFolder", func(t *testing.T) {
		cmd := run("")
		cmd.Args = []string{bin, "run", "name", "--", "true"} // the default store
		cmd.Env = append(environ(t), "XDG_STATE_HOME="+sealed)
		checkFailure(t, cmd, 77, sealed, "choose a file that you may write")
	})
}

// copyProgram copies the command, so that every user can run it.
func copyProgram(t *testing.T, to string) {
	t.Helper()
	self, err := exec.LookPath("snib")
	if err != nil {
		t.Fatal(err)
	}
	for d := filepath.Dir(to); d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	in, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestProgram builds the program as it is released, and checks its size and what makes it big. It
// does so without the workspace, which has greater versions of some modules than users get: with an
// older protobuf, which calls reflect.Value.MethodByName("Methods"), the program had 40 MB.
func TestProgram(t *testing.T) {
	livetest.Long(t) // it compiles the program and all that it needs with settings of its own
	bin := filepath.Join(t.TempDir(), "snib")
	build := exec.Command("go", "build", "-tags=grpcnotrace", "-trimpath", "-ldflags=-s -w -dumpdep", "-o", bin, ".")
	build.Env = append(os.Environ(), "GOWORK=off")
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, l := range strings.Split(string(out), "\n") {
		if strings.Contains(l, "<ReflectMethod>") {
			t.Errorf("%s\nReflection on methods by name, as in text/template, makes the linker keep all methods of all types", l)
		}
	}
	info, err := os.Stat(bin)
	if err != nil {
		t.Fatal(err)
	}
	// 28.2 MB on amd64: rueidis and crypto/tls are 3.5, pgx is 4.1, etcd with gRPC is 5.6, the
	// metrics of snib export are 1.4, snib serve and its driver are 0.7, and who may use it is 0.8.
	const ceiling = 29_000_000
	t.Logf("the program has %.2f MB, stripped", float64(info.Size())/1e6)
	if info.Size() > ceiling {
		t.Errorf("the program has %d bytes, and %d are allowed", info.Size(), ceiling)
	}
}

// TestMistakes gives runs that may wait URLs that can't be right. They end at once, and not after
// the minute for which an outage is waited out.
func TestMistakes(t *testing.T) {
	t.Parallel()
	newStore(t)
	postgres, mariadb := pgtest.Start(t).URL(), mysqltest.Start(t)
	redis := redistest.Single(t, redistest.Password(password))
	for url, want := range map[string]int{
		"redis://:wrong@" + redis.Addr():                                            77,
		"redis://" + redis.Addr():                                                   77,
		"redis://:" + encoded + "@" + redis.Addr() + "/999":                         78,
		strings.Replace(postgres, "/postgres?", "/none?", 1):                        78,
		postgres + "&nonsense=1":                                                    78,
		postgres + "&statement_timeout=soon":                                        78,
		strings.Replace(postgres, "sslmode=disable", "sslmode=require", 1):          78,
		strings.Replace(mysqlURL(mariadb.Addr()), mysqltest.Password(), "wrong", 1): 77,
		strings.TrimSuffix(mysqlURL(mariadb.Addr()), mysqltest.Database) + "none":   78,
		mysqlURL(mariadb.Addr()) + "?nonsense=1":                                    78,
		mysqlURL(mariadb.Addr()) + "?ssl-mode=REQUIRED":                             78,
	} {
		if out, code := snib(t, "run", "-u", url, "x", "--", "true"); code != want {
			t.Errorf("%s: exit code %d, want %d: %s", url, code, want, out)
		}
	}
}
