package cli

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestPages checks that each command of snib that a page names exists, with its flags.
func TestPages(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/backends/*.md", "docs/guide/*.md"} {
		found, err := filepath.Glob(filepath.Join("../../../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	n := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`snib ([^`]+)`").FindAllSubmatch(text, -1) {
			n++
			if problem := misnamed(string(m[1])); problem != "" {
				t.Errorf("%s: snib %s: %s", page, m[1], problem)
			}
		}
	}
	if n < 100 {
		t.Errorf("%d commands were found in %d pages", n, len(pages))
	}
}

// misnamed returns what a command line names that does not exist, or "". Words in capital letters
// stand for arguments.
func misnamed(line string) string {
	a := &app{out: io.Discard, err: io.Discard}
	root := a.newRootCommand()
	root.InitDefaultHelpCmd()
	words := strings.Fields(line)
	if isPlaceholder(words[0]) && words[0][0] != '-' {
		return ""
	}
	cmd, words, err := root.Find(words)
	if err != nil || cmd == root && !strings.HasPrefix(words[0], "-") {
		return "there is no such command"
	}
	args := cmd.ValidArgs
	if len(words) > 0 && len(args) > 0 && !isPlaceholder(words[0]) && !slices.Contains(args, words[0]) {
		return "there is no such argument"
	}
	for _, word := range words {
		word = strings.Trim(word, "[]…,.")
		if word == "--" {
			return ""
		}
		name, _, _ := strings.Cut(word, "=")
		if strings.HasPrefix(name, "-") && !hasFlag(cmd, name) {
			return "there is no flag " + name
		}
	}
	return ""
}

// isPlaceholder reports whether a word stands for others, or is an option.
func isPlaceholder(word string) bool {
	return word == strings.ToUpper(word) || strings.HasPrefix(word, "-") || strings.HasPrefix(word, "[")
}

func hasFlag(cmd *cobra.Command, name string) bool {
	cmd.InitDefaultHelpFlag()
	if long, ok := strings.CutPrefix(name, "--"); ok {
		return cmd.Flag(long) != nil
	}
	letter := name[1:2]
	return cmd.Flags().ShorthandLookup(letter) != nil || cmd.InheritedFlags().ShorthandLookup(letter) != nil
}

func TestMisnamed(t *testing.T) {
	for line, ok := range map[string]bool{
		"run --wait 5s NAME -- make --all": true, "run --skip -v NAME": true, "redlock recover --floor TOKEN URL": true,
		"leaks [PREFIX] [--fix]": true, "COMMAND --help": true, "--version": true, "show NAME -o json": true,
		"walk": false, "--worsion": false, "run --weight 5s": false, "redlock recoil": false, "show -Z NAME": false,
	} {
		if problem := misnamed(line); (problem == "") != ok {
			t.Errorf("snib %s: %q", line, problem)
		}
	}
}
