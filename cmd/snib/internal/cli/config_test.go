package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestConfigPage reads the file that docs/command.md shows.
func TestConfigPage(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/command.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```toml\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("the page shows no file")
	}
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, block[1], 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(configVar, file)
	t.Setenv(urlVar, "") // restores it
	if err := os.Unsetenv(urlVar); err != nil {
		t.Fatal(err)
	}
	a := &app{}
	for given, want := range map[string]string{
		"":                 "postgres://snib@db.example/locks",
		"cache":            "redis://cache.example:6379?password-file=/etc/snib/cache.password",
		"sqlite:/tmp/file": "sqlite:/tmp/file",
	} {
		if url, err := a.storeURL(given); err != nil || url != want {
			t.Errorf("the store %q is %s, %v, want %s", given, url, err, want)
		}
	}
}
