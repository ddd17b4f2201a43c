package livetest

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

// Disk creates a folder and mounts a tmpfs there until t ends. Options are those of tmpfs, such
// as "size=1m". The error matches [syscall.EPERM] if the process may not mount.
func Disk(t testing.TB, dir, options string) error {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := syscall.Mount("livetest", dir, "tmpfs", 0, options); err != nil {
		return fmt.Errorf("mount a disk at %s: %w", dir, err)
	}
	t.Cleanup(func() {
		Want(t, syscall.Unmount(dir, syscall.MNT_DETACH), nil, "unmount the disk at %s", dir)
	})
	return nil
}
