package fence

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sniblock/snib/driver"
)

// File guards a file that processes of one machine read and replace. The last mark is kept next
// to it, in a file with the same name and the ending ".fence", which is locked (flock) during
// each operation. A process that writes the file without the guard is not stopped.
//
// Anyone who may open the file of marks, if only to read it, can lock it and so keep all others
// out, and anyone who may write to the folder can replace it: allow both to the users of the
// guard only. A file that exists without its marks is refused, because otherwise a hold that is
// long over would be let in. If somebody removes both, the guard starts again without a mark.
//
// To repair a mark that is too great, remove the file of marks while no hold is active, and
// open the file with Adopt.
//
// Network file systems are not supported: their locks, and the order of their writes, may
// differ.
type File struct {
	// Path of the file, which need not exist yet. A symbolic link stands for its target, which
	// has to exist.
	Path string

	// Mode is the permissions of a new file; an existing one keeps its own. Zero means 0644.
	Mode fs.FileMode

	// MarkMode is the permissions of a new file of marks. Zero means 0600; if other users share
	// the guarded file, they need 0660 and its group.
	MarkMode fs.FileMode

	// Adopt allows a file that exists and has no marks: the guard then creates them.
	Adopt bool
}

// Open claims the file. The error matches [driver.ErrInvalid] if the file exists and its marks
// do not, unless Adopt is set.
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
	initial := marks
	initial.checkNew = func() error { return g.checkNew(path) }
	if err = initial.do(ctx, m, func(context.Context) error { return nil }); err != nil {
		return nil, err
	}
	marks.checkNew = func() error {
		return driver.Invalidf("file: %s, which contains the marks of a file, is gone or empty", marks.path)
	}
	return &FileHandle{path: path, mode: cmp.Or(g.Mode, 0o644), marks: marks, mark: m}, nil
}

// resolve returns path without symbolic links. The file need not exist, but its folder, and the
// target of a link, must.
func resolve(path string) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return resolved, err
	}
	if _, err := os.Lstat(path); err == nil {
		return "", driver.Invalidf("path: %s is a symbolic link that leads nowhere", path)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	return filepath.Join(dir, filepath.Base(path)), err
}

// checkNew returns an error unless a file without marks may get some: it is new, or adopted.
func (g File) checkNew(path string) error {
	if g.Adopt {
		return nil
	}
	switch _, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return driver.Invalidf("file: %s exists, but not its marks, %s.fence: either somebody removed them, or the file "+
		"was never guarded and must be adopted (Adopt, or --adopt)",
		path, path)
}

// A FileHandle gives a hold access to a file that it has claimed. Once a later hold has claimed
// the file, each method fails with a *[RefusedError], and has not touched the file.
type FileHandle struct {
	path  string
	mode  fs.FileMode // of a new file
	marks markFile
	mark  Mark
}

// Read returns the contents of the file. The error matches [fs.ErrNotExist] if there is no such
// file.
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

// Replace replaces the file's contents by what write writes: completely and durably, or not at
// all if there is an error. Readers see the old file or the new one. The file keeps its
// permissions, and its owner and group as far as this process may set them; another group gets
// only the rights that others have. A new file gets [File.Mode]. The function write runs before it
// is certain that the hold is still the last one, and while others are let in, so it may take its
// time. If the process is killed meanwhile, what it wrote stays beside the file, as ".NAME." and a
// number: remove it if no process writes it.
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
			return driver.Invalidf("file: %s is not a regular file any more", h.path)
		case err == nil:
			mode = keepOwner(temp, old)
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

// readFile reads a file, but follows no link.
func readFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}

// syncDir makes the names in a folder durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// A markFile keeps the last mark of one lock. It has two slots of slotSize bytes, which are
// written in turns, so that an interrupted write leaves the other slot as it was. Each slot is
// a checksum and a mark in JSON.
type markFile struct {
	path     string
	lock     string // the lock whose marks they are
	mode     fs.FileMode
	checkNew func() error // returns an error if a mark must exist already
}

const slotSize = 4096

// do does what [Guard.Do] says, for one lock.
func (f markFile) do(ctx context.Context, m Mark, fn func(context.Context) error) error {
	file, err := f.openLocked(ctx)
	if err != nil {
		return err
	}
	defer file.Close() // this unlocks it
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
	return fn(ctx)
}

// openLocked opens and locks the file. If the path meanwhile leads to another file, it starts
// again with that one.
func (f markFile) openLocked(ctx context.Context) (*os.File, error) {
	for {
		file, err := f.openOrCreate()
		if err != nil {
			return nil, err
		}
		if err = flock(ctx, file); err == nil {
			var current bool
			if current, err = f.isCurrent(file); current {
				return file, nil
			}
		}
		file.Close()
		if err != nil {
			return nil, err
		}
	}
}

// openOrCreate opens the file. If the file does not exist, it creates it, unless checkNew
// refuses that.
func (f markFile) openOrCreate() (*os.File, error) {
	file, err := os.OpenFile(f.path, os.O_RDWR|noFollow, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	if refused := f.checkNew(); refused != nil {
		// The error is final only if nobody created the file just now.
		if file, err = os.OpenFile(f.path, os.O_RDWR|noFollow, 0); errors.Is(err, fs.ErrNotExist) {
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
	if err = file.Chmod(f.mode); err != nil { // independent of the umask
		file.Close()
		return nil, err
	}
	return file, nil
}

// isCurrent reports whether the path leads to this file, and not over a link. It returns an error
// if this is no regular file.
func (f markFile) isCurrent(file *os.File) (bool, error) {
	opened, err := file.Stat()
	if err != nil {
		return false, err
	}
	if !opened.Mode().IsRegular() {
		return false, driver.Invalidf("file: %s is not a regular file", f.path)
	}
	current, err := os.Lstat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(opened, current), err
}

// read returns the last mark, and the slot in which it is.
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
		return last, 1, f.checkEmpty(file)
	}
	if last.Lock != f.lock {
		return last, slot, driver.Invalidf("lock: %s is guarded by the lock %q, not by %q", f.path, last.Lock, f.lock)
	}
	return last, slot, nil
}

// checkEmpty returns an error unless the file is empty and may get its first mark. If it is not
// empty, its contents may belong to somebody else, or be a damaged mark.
func (f markFile) checkEmpty(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return f.checkNew()
	}
	return driver.Invalidf("file: no fencing mark can be read in %s; if it is a file of marks, remove it when nobody "+
		"holds the lock", f.path)
}

func (f markFile) write(file *os.File, slot int, m Mark) error {
	text := encodeSlot(m)
	text = append(text, bytes.Repeat([]byte{' '}, slotSize-len(text))...)
	if _, err := file.WriteAt(text, int64(slot)*slotSize); err != nil {
		return err
	}
	return cmp.Or(file.Sync(), syncDir(filepath.Dir(f.path)))
}
