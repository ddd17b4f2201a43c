package livetest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// NewData makes dir, the data folder of a new server of that user. The program install sets it up,
// with args before the option that names the folder. Its first result is kept in the user's cache
// folder, and copied from then on: that takes a tenth of the processor time. In the folder in which
// install runs, the file [SecretFile] has the [Secret].
func (a Account) NewData(dir, install, option string, args ...string) error {
	kept, err := a.keptData(install, option, args)
	if err != nil {
		return err
	}
	return copyTree(kept, dir)
}

// keptData returns a folder in the user's cache folder, and makes it if necessary.
func (a Account) keptData(install, option string, args []string) (string, error) {
	info, err := os.Stat(install)
	if err != nil {
		return "", err
	}
	secret := Secret()
	uid, gid, _ := a.ids()
	key := sha256.Sum256(fmt.Append(nil, install, info.Size(), info.ModTime(), option, args, secret, uid, gid))
	return Kept(context.Background(), fmt.Sprintf("%s-%.8x", a, key), func(unfinished string) error {
		return a.setUp(unfinished, install, option, args, secret)
	})
}

// setUp makes the data folder dir.
func (a Account) setUp(dir, install, option string, args []string, secret string) error {
	home, err := os.MkdirTemp("", string(a)+"data") // where that user may write
	if err != nil {
		return err
	}
	defer os.RemoveAll(home) //nolint:errcheck // a folder for temporary files
	if err := a.give(home); err != nil {
		return err
	}
	file := filepath.Join(home, SecretFile)
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		return err
	}
	if err := a.give(file); err != nil {
		return err
	}
	made := filepath.Join(home, "data")
	cmd := exec.Command(install, append(args, option+made)...)
	cmd.Dir, cmd.SysProcAttr = home, a.Sys()
	// A starting MariaDB removes the temporary tables of all that share its folder for them.
	cmd.Env = append(os.Environ(), "TMPDIR="+home)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(install), err, out)
	}
	return copyTree(made, dir)
}

// copyTree copies a folder, with the owners and modes of its files, to a path where there is
// nothing yet.
func copyTree(from, to string) error {
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w\n%s", err, out)
	}
	return nil
}
