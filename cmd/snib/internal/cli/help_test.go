package cli

import (
	"bytes"
	"strings"
	"testing"
)

// TestHelp checks that the help of each command, as cobra prints it, has its examples and notes,
// that our own texts fit in 80 columns, and that the exit codes are found from the main page.
func TestHelp(t *testing.T) {
	var out bytes.Buffer
	a := &app{out: &out, err: &out}
	root := a.newRootCommand()
	serve, _, err := root.Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range append(append(serve.Commands(), root.Commands()...), root) {
		out.Reset()
		if err := cmd.Help(); err != nil || !strings.Contains(out.String(), cmd.Example) ||
			!strings.Contains(out.String(), cmd.Long) {
			t.Errorf("the help of %s lacks examples or notes, or %v: %s", cmd.CommandPath(), err, &out)
		}
		if cmd.Runnable() && cmd.Example == "" && cmd.Name() != "help" {
			t.Errorf("%s has no examples", cmd.CommandPath())
		}
		if title := cmd.CommandPath() + ": "; cmd.Example != "" && cmd != root && !strings.HasPrefix(out.String(), title) {
			t.Errorf("the help of %s does not begin with %q: %s", cmd.CommandPath(), title, &out)
		}
		_, notes, _ := strings.Cut(cmd.Long, "\n")
		for line := range strings.Lines(notes + "\n" + cmd.Example) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
				t.Errorf("help of %s: %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
	}
	if !strings.Contains(out.String(), "snib help exit-codes") {
		t.Errorf("the main page does not name the exit codes: %s", &out)
	}
}

// TestTooManyArguments checks that too many arguments are wrong usage, with the exit code for
// that.
func TestTooManyArguments(t *testing.T) {
	a := &app{}
	for _, cmd := range a.newRootCommand().Commands() {
		if cmd.Name() == "help" || cmd.Name() == "run" || !cmd.Runnable() {
			continue // a topic; help says that there is no such command; run runs the second argument
		}
		if err := cmd.Args(cmd, strings.Split("123456789", "")); exitCode(err) != exitUsage {
			t.Errorf("%s with 9 arguments: %v has the exit code %d, want %d", cmd.CommandPath(), err, exitCode(err), exitUsage)
		}
	}
}
