package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// newHome returns a folder of the user who runs the servers, and of nobody else. The test's own ones are of us.
func newHome(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgtest") //nolint:usetesting // another user may not enter those
	if err == nil {
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Errorf("remove the server's folder: %v", err)
			}
		})
		err = give(dir)
	}
	if err != nil {
		t.Fatalf("make a folder: %v", err)
	}
	return dir
}

// newData makes the folder with a new server's data.
func newData(postgres, home, dir string) error {
	initdb, err := sibling(postgres, "initdb")
	if err != nil {
		return err
	}
	cmd := exec.Command(initdb, "-D", dir, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	cmd.Dir, cmd.SysProcAttr = home, unprivileged()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// sibling returns the path of another program of the same installation, also if the first is only linked to.
func sibling(path, program string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(real), program), nil
}
