package cli

import (
	"bytes"
	"strings"
	"testing"
)

// TestHelpFits checks that the help of each command fits in 80 columns.
func TestHelpFits(t *testing.T) {
	var out bytes.Buffer
	a := &app{out: &out, err: &out}
	root := a.newRootCommand()
	for _, cmd := range append(root.Commands(), root) {
		out.Reset()
		a.help(cmd, nil)
		if out.Len() == 0 {
			t.Errorf("%s has no help", cmd.CommandPath())
		}
		for line := range strings.Lines(out.String()) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
				t.Errorf("help of %s: %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
	}
}

// TestTooManyArguments checks that too many arguments are wrong usage, with the exit code for
// that.
func TestTooManyArguments(t *testing.T) {
	a := &app{}
	for _, cmd := range a.newRootCommand().Commands() {
		if cmd.Name() == "help" {
			continue // it says that there is no such command
		}
		if err := cmd.Args(cmd, strings.Split("123456789", "")); exitCode(err) != exitUsage {
			t.Errorf("%s with 9 arguments: %v has the exit code %d, want %d", cmd.CommandPath(), err, exitCode(err), exitUsage)
		}
	}
}
