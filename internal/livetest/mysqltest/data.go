package mysqltest

import "github.com/sniblock/snib/internal/livetest"

// account is the user of servers: MariaDB does not run as root.
const account livetest.Account = "mysql"

// newData creates the data folder of a new server.
func newData(installer, dir string) error {
	return account.NewData(dir, installer, "--datadir=", "--no-defaults", "--auth-root-authentication-method=normal",
		"--skip-test-db",
		"--innodb-log-file-size="+logSize, "--innodb-flush-log-at-trx-commit=0")
}
