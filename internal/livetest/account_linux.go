package livetest

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// ids returns the user and the group of servers. ok is false if the tests do not run as
// root: then servers run as the tests do.
func (a Account) ids() (uid, gid int, ok bool) {
	if os.Geteuid() != 0 {
		return 0, 0, false
	}
	if u, err := user.Lookup("nobody"); err == nil {
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err1 == nil && err2 == nil {
			return uid, gid, true
		}
	}
	return 65534, 65534, true
}

// Sys returns the attributes that make a process run as that user.
func (a Account) Sys() *syscall.SysProcAttr {
	uid, gid, ok := a.ids()
	if !ok {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// give makes that user the owner of a folder.
func (a Account) give(dir string) error {
	uid, gid, ok := a.ids()
	if !ok {
		return nil
	}
	return os.Chown(dir, uid, gid)
}
