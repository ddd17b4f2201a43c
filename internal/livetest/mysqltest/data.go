package mysqltest

import (
	"fmt"
	"os/exec"

	"github.com/sniblock/snib/internal/livetest"
)

// account is whom servers run as: MariaDB does not run as root.
const account livetest.Account = "mysql"

// newData makes the folder with a new server's data.
func newData(install, home, dir string) error {
	cmd := exec.Command(install, "--no-defaults", "--datadir="+dir, "--auth-root-authentication-method=normal", "--skip-test-db",
		"--innodb-log-file-size="+logSize, "--innodb-flush-log-at-trx-commit=0",
		"--tmpdir="+home) // a server that starts removes the temporary tables of all who share its folder
	cmd.Dir, cmd.SysProcAttr = home, account.Sys()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	return nil
}
