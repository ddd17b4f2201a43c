package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// commandVar makes this test binary the command.
const commandVar = "SNIB_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandVar) != "" {
		main()
	}
	os.Exit(m.Run())
}

// TestRunOnWindows runs commands under a lock of a SQLite file.
func TestRunOnWindows(t *testing.T) {
	t.Setenv(commandVar, "1")
	t.Setenv("LocalAppData", t.TempDir())
	t.Setenv("XDG_STATE_HOME", "")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		args []string
		code int
		out  string
	}{
		{"Output", []string{"run", "deploy", "--", "cmd", "/c", "echo name=%SNIB_NAME%"}, 0, "name=deploy"},
		{"ExitCode", []string{"run", "deploy", "--", "cmd", "/c", "exit 7"}, 7, ""},
		{"OtherStore", []string{"run", "deploy", "--", self, "run", "--try", "-u", "sqlite:" + t.TempDir() + `\other.db`, "deploy", "--", "cmd", "/c", "exit 9"}, 9, ""},
		{"Nested", []string{"run", "deploy", "--", self, "run", "--try", "deploy", "--", "cmd", "/c", "exit 9"}, 64, "deploy"},
		{"Timeout", []string{"run", "--timeout", "2s", "-k", "1s", "deploy", "--", "ping", "-n", "60", "127.0.0.1"}, 124, "took longer"},
		{"NotFound", []string{"run", "deploy", "--", "no-such-command"}, 127, "command not found"},
		{"Doctor", []string{"doctor"}, 0, "on a local disk"},
		{"Hold", []string{"hold", "deploy", "--pid", "1"}, 64, "there is no snib hold on Windows"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, err := exec.Command(self, tt.args...).CombinedOutput()
			code := 0
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				code = exit.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			if code != tt.code || !strings.Contains(string(out), tt.out) {
				t.Errorf("snib %v exits %d and prints %q, want %d and %q", tt.args, code, out, tt.code, tt.out)
			}
		})
	}
}
