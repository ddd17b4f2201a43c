package fence

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sniblock/snib/driver"
)

// File guards a file that processes of one machine read and replace. The last mark stands beside it, in a file of the same name and the
// ending ".fence", which is locked (flock) during each operation; who writes the file without asking the guard is not stopped.
//
// Whoever may open the file of marks, if only to read it, can lock it and so keep all others out, and whoever may write to the folder can
// replace it: both are for the users of the guard only. A file that exists without its marks is refused, because a hold that
// is long over would be let in. If somebody removes both, the guard begins anew.
//
// To mend a mark that is too great, remove the file of marks once no hold is under way, and open the file with Adopt.
//
// Network file systems are not supported: their locks, and the order of their writes, are their own affair.
type File struct {
	// Path of the file, which need not exist yet. A symbolic link stands for what it points to, which has to exist.
	Path string

	// Mode is the permissions of a new file; an old one keeps its own. Zero means 0644.
	Mode fs.FileMode

	// MarkMode is the permissions of a new file of marks. Zero means 0600; others who share the guarded file need 0660 and its group.
	MarkMode fs.FileMode

	// Adopt begins to guard a file that exists and has no marks.
	Adopt bool
}

// Open claims the file. The error matches [driver.ErrInvalid] if the file exists and its marks don't, unless Adopt is set.
func (g File) Open(ctx context.Context, hold Hold) (*FileHandle, error) {
	m, err := Of(hold)
	if err != nil {
		return nil, err
	}
	path, err := resolve(g.Path)
	if err != nil {
		return nil, err
	}
	marks := markFile{path: path + ".fence", lock: m.Lock, mode: cmp.Or(g.MarkMode, 0o600)}
	begin := marks
	begin.mayBegin = func() error { return g.mayBegin(path) }
	if err = begin.do(ctx, m, nil); err != nil {
		return nil, err
	}
	marks.mayBegin = func() error {
		return fmt.Errorf("%w: %s is gone or empty, which has the marks of a file", driver.ErrInvalid, marks.path)
	}
	return &FileHandle{path: path, mode: cmp.Or(g.Mode, 0o644), marks: marks, mark: m}, nil
}

// resolve returns the path of what a path points to. The file need not exist, but its folder, and what a link leads to, do.
func resolve(path string) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return resolved, err
	}
	if _, err := os.Lstat(path); err == nil {
		return "", fmt.Errorf("%w path: %s is a symbolic link that leads nowhere", driver.ErrInvalid, path)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	return filepath.Join(dir, filepath.Base(path)), err
}

// mayBegin returns an error unless the marks of a file may begin: it is new, or adopted.
func (g File) mayBegin(path string) error {
	if g.Adopt {
		return nil
	}
	switch _, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: %s exists, but not its marks, %s.fence: either somebody removed them, or nobody has guarded the file yet and it is to be adopted",
		driver.ErrInvalid, path, path)
}

// A FileHandle is a hold's way to a file that it has claimed. Each method fails with a *[RefusedError], and has not touched the file,
// once a later hold has claimed it.
type FileHandle struct {
	path  string
	mode  fs.FileMode // of a new file
	marks markFile
	mark  Mark
}

// Read returns what the file contains. The error matches [fs.ErrNotExist] if there is no such file.
func (h *FileHandle) Read(ctx context.Context) (data []byte, err error) {
	err = h.marks.do(ctx, h.mark, func(context.Context) error {
		data, err = readFile(h.path)
		return err
	})
	return data, err
}

// Write replaces the file's contents; see [FileHandle.Replace].
func (h *FileHandle) Write(ctx context.Context, data []byte) error {
	return h.Replace(ctx, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Replace replaces the file's contents by what write writes: whole and for good, or not at all if there is an error. Readers see the old
// file or the new one. It keeps the file's permissions; those of a new file are [File.Mode]. Write runs before it is certain that the hold is
// still the last one, and while others are let in, so it may take its time.
func (h *FileHandle) Replace(ctx context.Context, write func(io.Writer) error) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(h.path), "."+filepath.Base(h.path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		temp.Close()
		if err != nil {
			err = errors.Join(err, os.Remove(temp.Name()))
		}
	}()
	if err = write(temp); err != nil {
		return err
	}
	if err = temp.Sync(); err != nil {
		return err
	}
	return h.marks.do(ctx, h.mark, func(context.Context) error {
		mode := h.mode
		switch old, err := os.Lstat(h.path); {
		case err == nil && !old.Mode().IsRegular():
			return fmt.Errorf("%w: %s is no regular file any more", driver.ErrInvalid, h.path)
		case err == nil:
			mode = old.Mode().Perm()
		}
		if err := temp.Chmod(mode); err != nil {
			return err
		}
		if err := os.Rename(temp.Name(), h.path); err != nil {
			return err
		}
		return syncDir(filepath.Dir(h.path))
	})
}

// readFile reads a file, but no link.
func readFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}

// Dir keeps the marks of many locks in a folder, durably, for guards of what several processes of one machine reach: a [Server], for
// example. It makes a file of 8 KiB for each lock, which stays: names that strangers may make up fill the disk.
//
// Nobody else may read these files or write to the folder, for the reasons that [File] has. A file that is gone is that of a new lock:
// keep the folder from programs that tidy up, and restore it from a backup only together with what it guards.
type Dir struct {
	Path string      // has to exist
	Mode fs.FileMode // of new files; zero means 0600
}

// File returns the name of the file of a lock's marks.
func (g Dir) File(lock string) string {
	sum := sha256.Sum256([]byte(lock))
	return filepath.Join(g.Path, hex.EncodeToString(sum[:16])+".fence")
}

// Do implements [Guard].
func (g Dir) Do(ctx context.Context, m Mark, fn func(context.Context) error) error {
	if err := m.Check(); err != nil {
		return err
	}
	f := markFile{path: g.File(m.Lock), lock: m.Lock, mode: cmp.Or(g.Mode, 0o600), mayBegin: func() error { return nil }}
	return f.do(ctx, m, fn)
}

// Open claims what the caller guards with g; see [Open].
func (g Dir) Open(ctx context.Context, h Hold) (*Handle, error) { return Open(ctx, g, h) }

// syncDir makes the names in a folder durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// A markFile keeps the last mark of one lock. It has two places of slotSize bytes, which are written in turns, so that a write
// which is cut short leaves the other one as it was; each is a checksum and a mark in JSON.
type markFile struct {
	path     string
	lock     string // whose marks they are
	mode     fs.FileMode
	mayBegin func() error // returns an error unless there need not be a mark yet
}

const slotSize = 4096

// do is [Guard.Do].
func (f markFile) do(ctx context.Context, m Mark, fn func(context.Context) error) error {
	file, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer file.Close() // which unlocks it
	last, slot, err := f.read(file)
	if err != nil {
		return err
	}
	if err = m.After(last); err != nil {
		return err
	}
	if m != last {
		if err = f.write(file, 1-slot, m); err != nil {
			return err
		}
	}
	if fn == nil {
		return nil
	}
	return fn(ctx)
}

// open opens and locks the file that has the path then.
func (f markFile) open(ctx context.Context) (*os.File, error) {
	for {
		file, err := f.openOnce()
		if err != nil {
			return nil, err
		}
		if err = flock(ctx, file); err == nil {
			var same bool
			if same, err = f.has(file); same {
				return file, nil
			}
		}
		file.Close()
		if err != nil {
			return nil, err
		}
	}
}

// openOnce opens the file, and makes it if it may begin.
func (f markFile) openOnce() (*os.File, error) {
	file, err := os.OpenFile(f.path, os.O_RDWR|noFollow, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	if refused := f.mayBegin(); refused != nil {
		if file, err = os.OpenFile(f.path, os.O_RDWR|noFollow, 0); errors.Is(err, fs.ErrNotExist) { // nobody made it just now
			return nil, refused
		}
		return file, err
	}
	file, err = os.OpenFile(f.path, os.O_RDWR|os.O_CREATE|os.O_EXCL|noFollow, f.mode)
	if errors.Is(err, fs.ErrExist) {
		return os.OpenFile(f.path, os.O_RDWR|noFollow, 0)
	}
	if err != nil {
		return nil, err
	}
	if err = file.Chmod(f.mode); err != nil { // whatever the umask
		file.Close()
		return nil, err
	}
	return file, nil
}

// has reports whether the path leads to this file, and to no link.
func (f markFile) has(file *os.File) (bool, error) {
	ours, err := file.Stat()
	if err != nil {
		return false, err
	}
	if !ours.Mode().IsRegular() {
		return false, fmt.Errorf("%w: %s is no regular file", driver.ErrInvalid, f.path)
	}
	theirs, err := os.Lstat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(ours, theirs), err
}

// read returns the last mark, and the place where it stands.
func (f markFile) read(file *os.File) (last Mark, slot int, err error) {
	for i := range 2 {
		buf := make([]byte, slotSize)
		n, err := file.ReadAt(buf, int64(i)*slotSize)
		if err != nil && !errors.Is(err, io.EOF) {
			return last, slot, err
		}
		if m, ok := decodeSlot(buf[:n]); ok && m.Token >= last.Token {
			last, slot = m, i
		}
	}
	if last == (Mark{}) {
		return last, 1, f.fresh(file)
	}
	if last.Lock != f.lock {
		return last, slot, fmt.Errorf("%w: %s is guarded by the lock %q, not by %q", driver.ErrInvalid, f.path, last.Lock, f.lock)
	}
	return last, slot, nil
}

// fresh returns an error unless the file is new, and may begin: what is in it may be somebody else's, or a mark that has been damaged.
func (f markFile) fresh(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return f.mayBegin()
	}
	return fmt.Errorf("%w: no fencing mark can be read in %s; if the file is one of marks, remove it once no hold is under way",
		driver.ErrInvalid, f.path)
}

func (f markFile) write(file *os.File, slot int, m Mark) error {
	text := encodeSlot(m)
	text = append(text, bytes.Repeat([]byte{' '}, slotSize-len(text))...)
	if _, err := file.WriteAt(text, int64(slot)*slotSize); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return syncDir(filepath.Dir(f.path))
}
