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
	const want = "postgres://snib@db.example/locks?password-file=/etc/snib/db.password"
	if url, err := a.storeURL(""); err != nil || url != want {
		t.Errorf("the store is %s, %v, want %s", url, err, want)
	}
}

// TestPasswords finds the passwords of URLs, which snib hides from ps, and for which doctor looks
// in the configuration file.
func TestPasswords(t *testing.T) {
	tests := []struct{ arg, want string }{
		{"run", "run"},
		{"a:b@c", "a:b@c"},
		{"redis://host:6379/0", "redis://host:6379/0"},
		{"redis://user@host:6379", "redis://user@host:6379"},
		{"redis://user:secret@host:6379", "redis://user:xxxxxx@host:6379"},
		{"--url=redis://:s:e@c/r?e#t@host", "--url=redis://:xxxxxxxxxxx@host"},
		{
			"-vuredis+sentinel://u:p@h/m?sentinel-password=secret&dial-timeout=1s&password=x1",
			"-vuredis+sentinel://u:x@h/m?sentinel-password=xxxxxx&dial-timeout=1s&password=xx",
		},
		{"redis://h/0?sentinel-password=secret", "redis://h/0?sentinel-password=xxxxxx"},
		{"redlock://:pw@a:6379,b,c", "redlock://:xx@a:6379,b,c"},
		{"redis+sentinel://:pw@h1:26379,h2/m", "redis+sentinel://:xx@h1:26379,h2/m"},
		{"redis://h/0?password-file=secret", "redis://h/0?password-file=secret"},
	}
	for _, tt := range tests {
		b := []byte(tt.arg)
		overwrite(b, findPasswords(tt.arg))
		if got := string(b); got != tt.want {
			t.Errorf("without its passwords %s is %s, want %s", tt.arg, got, tt.want)
		}
	}
}
