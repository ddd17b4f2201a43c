package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheck checks a workspace with mistakes in files that are for Windows only.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.work":             "go 1.26\nuse ./a\n",
		"a/go.mod":            "module example.com/a\ngo 1.26\n",
		"a/a.go":              "package a\n\nimport \"os\"\n\nvar Name = os.DevNull\n",
		"a/a_windows.go":      "package a\n\nfunc f() { missing() }\n",
		"a/a_test.go":         "package a\n",
		"a/b_windows_test.go": "package a\n\nvar n int = \"one\"\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("GOWORK", filepath.Join(dir, "go.work"))
	t.Setenv("GOFLAGS", "")
	if err := run([]string{"linux/arm64"}); err != nil {
		t.Errorf("on Linux: %v", err)
	}
	err := run([]string{"windows/amd64"})
	if err == nil {
		t.Fatal("the mistakes for Windows are not found")
	}
	for _, want := range []string{"windows/amd64", "a_windows.go:3:12: undefined: missing", "b_windows_test.go:3:13"} {
		if strings.Count(err.Error(), want) != 1 {
			t.Errorf("the error does not say %q once: %v", want, err)
		}
	}
	for _, platforms := range [][]string{nil, {"linux"}} {
		if err := run(platforms); err == nil {
			t.Errorf("the platforms %q are accepted", platforms)
		}
	}
}
