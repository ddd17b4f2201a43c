package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

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
func copyData(postgres, dir, addr string) error {
	backup, err := sibling(postgres, "pg_basebackup")
	if err != nil {
		return err
	}
	cmd := exec.Command(backup, "-D", dir, "-d", "postgres://"+User+"@"+addr, "-R",
		"-X", "stream", "-c", "fast", "--no-sync")
	cmd.Dir, cmd.SysProcAttr = filepath.Dir(dir), account.Sys()
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

// removeMemory removes the shared memory that a killed server leaves: a host has room for 4,096 of
// them. Its id is in the seventh line of postmaster.pid, which is gone after a clean shutdown.
func removeMemory(data string) {
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	lines := strings.Split(string(text), "\n")
	if err != nil || len(lines) < 7 {
		return
	}
	if segment := strings.Fields(lines[6]); len(segment) > 1 {
		_ = exec.Command("ipcrm", "-m", segment[1]).Run() // else it stays
	}
}
