package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sniblock/snib/lab/scene"
)

// TestDemoPages checks that the page of each scene exists, and has the place that is named.
func TestDemoPages(t *testing.T) {
	for _, s := range scene.All() {
		file, anchor, _ := strings.Cut(s.Page, "#")
		page, err := os.ReadFile(filepath.Join(docs, "..", file))
		if errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: there is no page %s", s.Name, file)
		} else if !strings.Contains(string(page), `<a id="`+anchor+`"></a>`) {
			t.Errorf("%s: there is no place %q in %s (%v)", s.Name, anchor, file, err)
		}
	}
}

// TestInstallHint checks that a user learns how to get the server of a scene.
func TestInstallHint(t *testing.T) {
	for _, server := range []string{"redis", "postgres", "zookeeper", "mysql", "etcd"} {
		got := installHint(&scene.MissingError{Server: server, Why: "x is not installed"})
		if !strings.HasPrefix(got, "x is not installed; ") || !strings.Contains(got, "apt install ") {
			t.Errorf("hint for %s = %q", server, got)
		}
	}
	if got := installHint(&scene.MissingError{Server: "other", Why: "x is not installed"}); got != "x is not installed" {
		t.Errorf("hint for an unknown server = %q", got)
	}
}
