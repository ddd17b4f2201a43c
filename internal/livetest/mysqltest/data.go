package mysqltest

import (
	"fmt"
	"os/exec"

	"github.com/sniblock/snib/internal/livetest"
)

// account is the user of servers: MariaDB does not run as root.
const account livetest.Account = "mysql"

// newData creates the data folder of a new server.
func newData(installer, home, dir string) error {
	cmd := exec.Command(installer, "--no-defaults", "--datadir="+dir, "--auth-root-authentication-method=normal", "--skip-test-db",
		"--innodb-log-file-size="+logSize, "--innodb-flush-log-at-trx-commit=0",
		// A starting server removes the temporary tables of all that share its folder.
		"--tmpdir="+home)
	cmd.Dir, cmd.SysProcAttr = home, account.Sys()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	return nil
}
