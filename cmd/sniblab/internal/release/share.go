package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// completions are the scripts for shells, and where systems look for them.
var completions = map[string]string{
	"bash": "/usr/share/bash-completion/completions/snib",
	"zsh":  "/usr/share/zsh/vendor-completions/_snib",
	"fish": "/usr/share/fish/vendor_completions.d/snib.fish",
}

// A shared file is part of each package, whatever the platform.
type shared struct{ src, dst string }

// share makes what is beside the command in packages: completions, and the help as a page of
// the manual.
func (r *release) share(ctx context.Context, date time.Time) ([]shared, error) {
	i := slices.IndexFunc(r.built, func(b binary) bool { return b.os == runtime.GOOS && b.arch == runtime.GOARCH })
	if i < 0 {
		return nil, fmt.Errorf("packages: there is no command for %s/%s, which would print the completions", runtime.GOOS, runtime.GOARCH)
	}
	files := []shared{
		{filepath.Join(r.clone, "LICENSE"), "/usr/share/doc/snib/copyright"},
		{filepath.Join(r.clone, "docs", "command.md"), "/usr/share/doc/snib/command.md"},
		{filepath.Join(r.clone, "cmd", "snib", "snib.service"), "/usr/lib/systemd/system/snib.service"},
		{filepath.Join(r.clone, "cmd", "snib", "sysusers.conf"), "/usr/lib/sysusers.d/snib.conf"},
		{filepath.Join(r.clone, "cmd", "snib", "monitoring", "alerts.yml"), "/usr/share/doc/snib/alerts.yml"},
		{filepath.Join(r.clone, "cmd", "snib", "monitoring", "grafana.json"), "/usr/share/doc/snib/grafana.json"},
	}
	add := func(name, text, dst string) error {
		src := filepath.Join(r.tmp, name)
		files = append(files, shared{src, dst})
		return os.WriteFile(src, []byte(text+"\n"), 0o644)
	}
	for _, shell := range slices.Sorted(maps.Keys(completions)) {
		script, err := call{dir: r.tmp, cmd: []string{r.built[i].file, "completion", shell}}.output(ctx)
		if err != nil {
			return nil, err
		}
		if err := add("completion."+shell, script, completions[shell]); err != nil {
			return nil, err
		}
	}
	manual, err := r.manual(ctx, r.built[i].file, date)
	if err != nil {
		return nil, err
	}
	err = add("snib.1", manual, "/usr/share/man/man1/snib.1")
	return files, err
}

// manual returns a page of the manual with the help of all commands and topics.
func (r *release) manual(ctx context.Context, snib string, date time.Time) (string, error) {
	commands, err := call{dir: r.tmp, cmd: []string{snib, "__complete", ""}}.output(ctx) // cobra's own list
	if err != nil {
		return "", err
	}
	topics := []string{""}
	for line := range strings.Lines(commands) {
		if name, _, ok := strings.Cut(line, "\t"); ok && name != "help" {
			topics = append(topics, name)
		}
	}
	page := fmt.Sprintf("%% snib 1 %q\n\n# NAME\n\nsnib - run programs under locks, and show and free the locks\n", date.Format("January 2006"))
	for _, topic := range append(topics, "exit-codes", "stores", "environment") {
		text, err := call{dir: r.tmp, cmd: append([]string{snib, "help"}, strings.Fields(topic)...)}.output(ctx)
		if err != nil {
			return "", err
		}
		page += fmt.Sprintf("\n# snib %s\n\n```\n%s\n```\n", topic, text)
	}
	in := filepath.Join(r.tmp, "snib.1.md")
	if err := os.WriteFile(in, []byte(page), 0o644); err != nil {
		return "", err
	}
	return r.goRun(ctx, r.tmp, manTool, "-in", in)
}
