package cli

import (
	"bytes"
	"slices"
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

// TestSummary checks that the summary fits on a screen, and that it has each command once.
func TestSummary(t *testing.T) {
	root := (&app{}).newRootCommand()
	text := summary(root)
	if n := strings.Count(text, "\n"); n > 24 {
		t.Errorf("%d lines on a screen of 24:\n%s", n, text)
	}
	_, list, _ := strings.Cut(text, "\nCommands\n")
	list, _, _ = strings.Cut(list, "\n\n")
	var got, want []string
	for line := range strings.Lines(list) {
		got = append(got, strings.Fields(line)[1:]...)
	}
	for _, cmd := range root.Commands() {
		want = append(want, cmd.Name())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("it has the commands\n%q, want\n%q", got, want)
	}
}

// TestTooManyArguments checks that too many arguments are wrong usage, with the exit code for
// that.
func TestTooManyArguments(t *testing.T) {
	a := &app{}
	for _, cmd := range a.newRootCommand().Commands() {
		if cmd.Name() == "help" || cmd.Name() == "run" {
			continue // help says that there is no such command; run runs the second argument
		}
		if err := cmd.Args(cmd, strings.Split("123456789", "")); exitCode(err) != exitUsage {
			t.Errorf("%s with 9 arguments: %v has the exit code %d, want %d", cmd.CommandPath(), err, exitCode(err), exitUsage)
		}
	}
}
