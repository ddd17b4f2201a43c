package mysqltest

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// newHome returns a folder of the user who runs the servers, and of nobody else. The test's own ones are of us.
func newHome(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", name+"test") //nolint:usetesting // those of tests are ours, and closed to others
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
func newData(install, home, dir string) error {
	cmd := exec.Command(install, "--no-defaults", "--datadir="+dir, "--auth-root-authentication-method=normal", "--skip-test-db",
		"--innodb-log-file-size="+logSize, "--innodb-flush-log-at-trx-commit=0",
		"--tmpdir="+home) // a server that starts removes the temporary tables of all who share its folder
	cmd.Dir, cmd.SysProcAttr = home, unprivileged()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	return nil
}
