package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/sniblock/snib/internal/livetest"
)

// account is the user of servers: neither PostgreSQL nor PgBouncer runs as root.
const account livetest.Account = "postgres"

// newData creates the data folder of a new server.
func newData(postgres, dir string) error {
	initdb, err := sibling(postgres, "initdb")
	if err != nil {
		return err
	}
	err = account.NewData(dir, initdb, "--pgdata=", "-U", User, "-A", "md5", "--pwfile="+livetest.SecretFile, "-E", "UTF8", "--no-locale", "--no-sync")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "pg_hba.conf"), []byte(access), 0o600)
}

// access says who needs a password.
const access = `host all         postgres 127.0.0.1/32 md5
host replication postgres 127.0.0.1/32 md5
host all         all      127.0.0.1/32 trust
`

// copyData creates the data folder of a standby of the server at addr.
func copyData(postgres, home, dir, addr string) error {
	backup, err := sibling(postgres, "pg_basebackup")
	if err != nil {
		return err
	}
	cmd := exec.Command(backup, "-D", dir, "-d", "postgres://"+User+"@"+addr, "-R",
		"-X", "stream", "-c", "fast", "--no-sync")
	cmd.Dir, cmd.SysProcAttr = home, account.Sys()
	cmd.Env = append(os.Environ(), "PGPASSWORD="+Password()) // others see arguments
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup: %w\n%s", err, out)
	}
	return nil
}

// sibling returns the path of another program of the same installation, also if
// path is a symbolic link.
func sibling(path, program string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(real), program), nil
}
