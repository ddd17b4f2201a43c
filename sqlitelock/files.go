package sqlitelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sniblock/snib/driver"
)

// tempPattern matches the names of files and folders that exist while a database is created.
const tempPattern = ".snib-*"

// The files beside the database.
const (
	walSuffix  = "-wal"
	shmSuffix  = "-shm"
	liveSuffix = ".live"
)

// suffixes are the suffixes of all files of a database.
var suffixes = [...]string{"", walSuffix, shmSuffix, liveSuffix}

// Mode sets the permissions of a database that Open creates, and of the files beside it,
// whatever the umask is. The default, 0600, is for one user. 0660 also admits the members of
// the folder's group, and 0666 everybody. A database that exists keeps its mode, and files
// that are created beside it get the same mode.
//
// A user who may use the file can free each lock in it. A user who may only read it could block
// everybody, and read the ids with which locks are released. So a mode with a class that
// may only read or only write is a [driver.ErrInvalid].
func Mode(mode fs.FileMode) Option {
	return Option{func(d *Driver) error {
		if mode != readWriteClasses(mode) || mode&0o600 != 0o600 {
			return driver.Invalidf(
				"mode %#o: it must let the owner, and may let the group and others, both read and write, as 0600, 0660 and 0666 do",
				mode)
		}
		d.mode = mode
		return nil
	}}
}

// readWriteClasses returns the mode without the permissions of classes that may not
// both read and write.
func readWriteClasses(mode fs.FileMode) fs.FileMode {
	var kept fs.FileMode
	for _, class := range []fs.FileMode{0o600, 0o060, 0o006} {
		if mode&class == class {
			kept |= class
		}
	}
	return kept
}

// checkFile returns an error if the file exists and can't be used. A symbolic link to the database
// was followed before; a link in place of a file beside it would lead to an unrelated file.
func checkFile(path string) error {
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case fi.IsDir():
		return driver.Invalidf("file: %s is a folder; name a file in it, such as %s", path, filepath.Join(path, "locks.db"))
	case !fi.Mode().IsRegular():
		return driver.Invalidf("file: %s is not a regular file", path)
	}
	return checkFileAccess(path, fi)
}

// makeFile creates an empty file of the database unless the name exists already. Other
// processes see the file with its permissions or not at all.
func (d *Driver) makeFile(suffix string) error {
	path := d.path + suffix
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	mode, group, err := d.newFileAccess()
	if err != nil {
		return err
	}
	// SQLite and the umask would give it other permissions.
	f, err := os.CreateTemp(filepath.Dir(path), tempPattern)
	if err != nil {
		return cantCreate(path, err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is empty
	if mode&0o060 != 0 && group >= 0 {
		err = f.Chown(-1, group)
	}
	if err := errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return fmt.Errorf("let the group of %s use %s: %w", filepath.Dir(path), path, err)
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return cantCreate(path, err)
	}
	return nil
}

// newFileAccess returns the permissions and the group for a new file: those of the database if
// it exists, else the permissions that [Mode] set and the folder's group.
func (d *Driver) newFileAccess() (mode fs.FileMode, group int, err error) {
	db, err := os.Stat(d.path)
	if err == nil {
		return readWriteClasses(db.Mode().Perm()) | 0o600, groupOf(db), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return 0, 0, err
	}
	dir, err := os.Stat(filepath.Dir(d.path))
	if err != nil {
		return 0, 0, err
	}
	return d.mode, groupOf(dir), nil
}

// checkDeleted returns an error if one of SQLite's files is missing although
// processes have bytes of the sidecar locked. With a new file, old and new
// processes would not see one another's locks.
func (d *Driver) checkDeleted() error {
	if d.missingFile() == "" {
		return nil
	}
	side, err := openSidecar(d.path + liveSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer side.close() //nolint:errcheck // nothing is locked in it
	inUse := side.inUse()
	// Check again: another process may have created the database meanwhile, and locked a byte.
	gone := d.missingFile()
	if !inUse || gone == "" {
		return nil
	}
	return fmt.Errorf("%s was deleted while processes use it; stop them all, then start them again", gone)
}

// missingFile returns the path of one of SQLite's files that does not exist, or "".
func (d *Driver) missingFile() string {
	for _, suffix := range []string{"", walSuffix, shmSuffix} {
		if _, err := os.Lstat(d.path + suffix); errors.Is(err, fs.ErrNotExist) {
			return d.path + suffix
		}
	}
	return ""
}

// cantCreate returns a clearer error if the folder exists but nothing can be created in it,
// such as /proc. It returns other errors unchanged.
func cantCreate(path string, err error) error {
	dir := filepath.Dir(path)
	if _, found := os.Stat(dir); found == nil && errors.Is(err, fs.ErrNotExist) {
		return driver.Invalidf("place: no file can be created in %s; name one on a local disk", dir)
	}
	return err
}
