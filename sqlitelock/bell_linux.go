package sqlitelock

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// signalChange sets the time of change of a file, which wakes those who watch it. Whoever may write
// to the file may do that.
func signalChange(path string) error { return unix.UtimesNanoAt(unix.AT_FDCWD, path, nil, 0) }

// watchChanges returns what can be read when signalChange is called for a file. The number of
// watchers of a user is limited (fs.inotify.max_user_instances).
func watchChanges(path string) (io.ReadCloser, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_ATTRIB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
