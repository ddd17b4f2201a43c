package fence

import (
	"bytes"
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
// Network file systems are not supported: their locks, and the order of their writes, are their own affair.
type File struct {
	// Path of the file, which need not exist yet. A symbolic link stands for what it points to.
	Path string
}

// Open claims the file.
func (g File) Open(ctx context.Context, hold Hold) (*FileHandle, error) {
	m, err := Of(hold)
	if err != nil {
		return nil, err
	}
	path, err := filepath.EvalSymlinks(g.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		path = g.Path
	case err != nil:
		return nil, err
	}
	h := &FileHandle{path: path, marks: markFile{path: path + ".fence", lock: m.Lock}, mark: m}
	if err = h.marks.do(ctx, m, nil); err != nil {
		return nil, err
	}
	return h, nil
}

// A FileHandle is a hold's way to a file that it has claimed. Each method fails with a *[RefusedError], and has not touched the file,
// once a later hold has claimed it.
type FileHandle struct {
	path  string
	marks markFile
	mark  Mark
}

// Read returns what the file contains. The error matches [fs.ErrNotExist] if there is no such file.
func (h *FileHandle) Read(ctx context.Context) (data []byte, err error) {
	err = h.marks.do(ctx, h.mark, func(context.Context) error {
		data, err = os.ReadFile(h.path)
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
// file or the new one. It keeps the file's permissions; those of a new file are 0644. Write runs before it is certain that the hold is
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
		mode := fs.FileMode(0o644)
		if old, err := os.Stat(h.path); err == nil {
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

// Dir keeps the marks of many locks in a folder, durably, for guards of what several processes of one machine reach: a [Server], for
// example. It makes a file of 8 KiB for each lock, which stays.
type Dir struct {
	Path string // has to exist
}

// Do implements [Guard].
func (g Dir) Do(ctx context.Context, m Mark, fn func(context.Context) error) error {
	if err := m.check(); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(m.Lock))
	f := markFile{path: filepath.Join(g.Path, hex.EncodeToString(sum[:16])+".fence"), lock: m.Lock}
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
	path string
	lock string // whose marks they are
}

const slotSize = 4096

// do is [Guard.Do].
func (f markFile) do(ctx context.Context, m Mark, fn func(context.Context) error) error {
	file, err := os.OpenFile(f.path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	defer file.Close() // which unlocks it
	if err = flock(ctx, file); err != nil {
		return err
	}
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

// fresh returns an error unless the file is new: what is in it may be somebody else's, or a mark that has been damaged.
func (f markFile) fresh(file *os.File) error {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return err
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
