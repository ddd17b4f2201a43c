package mysqltest

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// runAs returns whom servers run as: MariaDB does not run as root. ok is false if we are not root, and
// they run as we do.
func runAs() (uid, gid int, ok bool) {
	if os.Geteuid() != 0 {
		return 0, 0, false
	}
	for _, name := range []string{"mysql", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err1 == nil && err2 == nil {
			return uid, gid, true
		}
	}
	return 65534, 65534, true
}

func unprivileged() *syscall.SysProcAttr {
	uid, gid, ok := runAs()
	if !ok {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// give makes a folder the property of that user.
func give(dir string) error {
	uid, gid, ok := runAs()
	if !ok {
		return nil
	}
	return os.Chown(dir, uid, gid)
}
