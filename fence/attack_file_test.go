//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package fence_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
)

// mustBeInvalid checks that an error is an ErrInvalid that contains a text.
func mustBeInvalid(t *testing.T, what string, err error, text string) {
	t.Helper()
	if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s = %v, want ErrInvalid that says %q", what, err, text)
	}
}

func modeOf(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

// Only the owner may open the files of marks, whatever the umask is, unless the caller allows
// more.
func TestModes(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	ctx, dir := t.Context(), t.TempDir()
	path := filepath.Join(dir, "a")
	if err := openFile(t, path, 7, "a").Write(ctx, nil); err != nil {
		t.Fatal(err)
	}
	shared := filepath.Join(dir, "b")
	h, err := fence.File{Path: shared, Mode: 0o660, MarkMode: 0o660}.Open(ctx, hold{"state", 7, "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err = h.Write(ctx, nil); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{
		path: 0o644, path + ".fence": 0o600, shared: 0o660, shared + ".fence": 0o660,
	} {
		if got := modeOf(t, path); got != want {
			t.Errorf("the mode of %s is %v, want %v", path, got, want)
		}
	}
}

// A link in the place of the marks, or one that leads nowhere, is refused, and its target is
// not touched.
func TestLinks(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "state")
	for _, target := range []string{victim, filepath.Join(dir, "nowhere")} {
		if err := os.WriteFile(victim, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path+".fence"); err != nil {
			t.Fatal(err)
		}
		if _, err := (fence.File{Path: path}).Open(ctx, hold{"state", 7, "a"}); err == nil {
			t.Errorf("Open with marks that are a link to %s = nil", target)
		}
		if data, _ := os.ReadFile(victim); len(data) > 0 {
			t.Errorf("what the link leads to has %q", data)
		}
		if _, err := os.Lstat(filepath.Join(dir, "nowhere")); err == nil {
			t.Error("a file was made through the link")
		}
		if err := os.Remove(path + ".fence"); err != nil {
			t.Fatal(err)
		}
	}
	dangling := filepath.Join(dir, "dangling")
	if err := os.Symlink("gone", dangling); err != nil {
		t.Fatal(err)
	}
	_, err := fence.File{Path: dangling}.Open(ctx, hold{"state", 7, "a"})
	mustBeInvalid(t, "Open of a link that leads nowhere", err, "leads nowhere")

	h := openFile(t, path, 7, "a")
	if err := os.Symlink(victim, path); err != nil { // after the path was resolved
		t.Fatal(err)
	}
	if data, err := h.Read(ctx); err == nil {
		t.Errorf("Read through a link that came later = %q", data)
	}
	mustBeInvalid(t, "Write over a link that came later", h.Write(ctx, []byte("x")), "not a regular file")
	folder := filepath.Join(dir, "folder")
	if err := os.Symlink(dir, folder); err != nil {
		t.Fatal(err)
	}
	// A folder may be a link, also that of a file that does not exist yet.
	openFile(t, filepath.Join(folder, "new"), 7, "a")
	_, err = fence.File{Path: filepath.Join(dir, "new")}.Open(ctx, hold{"state", 6, "old"})
	if !errors.Is(err, fence.ErrStale) {
		t.Errorf("Open of the same file by another name = %v, want ErrStale", err)
	}
}

// If the marks are removed or emptied, no old hold is let in.
func TestMarksAreGone(t *testing.T) {
	for how, destroy := range map[string]func(string) error{
		"Removed": os.Remove,
		"Emptied": func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(how, func(t *testing.T) {
			ctx, path := t.Context(), filepath.Join(t.TempDir(), "state")
			stale := openFile(t, path, 7, "old")
			later := openFile(t, path, 8, "later")
			if err := later.Write(ctx, []byte("one")); err != nil {
				t.Fatal(err)
			}
			if err := destroy(path + ".fence"); err != nil {
				t.Fatal(err)
			}
			for who, h := range map[string]*fence.FileHandle{"old": stale, "last": later} {
				mustBeInvalid(t, "Write of the "+who+" hold", h.Write(ctx, []byte("late")), "is gone or empty")
			}
			_, err := fence.File{Path: path}.Open(ctx, hold{"state", 7, "old"})
			mustBeInvalid(t, "Open", err, "adopted")
			if data, err := os.ReadFile(path); err != nil || string(data) != "one" {
				t.Errorf("the file has %q, %v", data, err)
			}
			if _, err = (fence.File{Path: path, Adopt: true}).Open(ctx, hold{"state", 9, "new"}); err != nil {
				t.Errorf("Open with Adopt = %v", err)
			}
			if err := stale.Write(ctx, []byte("late")); !errors.Is(err, fence.ErrStale) {
				t.Errorf("Write of the old hold after the adoption = %v, want ErrStale", err)
			}
		})
	}
}

// If the marks are replaced while a hold waits for them, it goes on with the new ones, and only
// they decide.
func TestMarksAreReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	name := path + ".fence"
	openFile(t, path, 7, "a")
	unlock := operate(t, name)
	first := make(chan error, 1)
	go func() {
		_, err := fence.File{Path: path}.Open(t.Context(), hold{"state", 8, "b"})
		first <- err
	}()
	waitForOpen(t, name)
	if err := os.Rename(name, name+".old"); err != nil {
		t.Fatal(err)
	}
	openFile(t, path, 9, "c") // creates another file
	unlock()
	if err := <-first; !errors.Is(err, fence.ErrStale) {
		t.Errorf("Open behind marks that were replaced = %v, want ErrStale by the new ones", err)
	}
}

// While an operation runs, a later hold is not let in; its wait ends with its context.
func TestFileExcludes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	old := openFile(t, path, 7, "old")
	unlock := operate(t, path+".fence")
	mustWait(t, func(ctx context.Context) error {
		_, err := fence.File{Path: path}.Open(ctx, hold{"state", 8, "later"})
		return err
	})
	unlock()
	if err := old.Write(t.Context(), nil); err != nil {
		t.Errorf("Write after a later hold gave up: %v", err)
	}
}

// operate locks a file of marks, as an operation in another process does.
func operate(t *testing.T, marks string) (unlock func()) {
	t.Helper()
	file, err := os.Open(marks)
	if err == nil {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return func() { file.Close() }
}

// waitForOpen waits until two of our file descriptors refer to the file.
func waitForOpen(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		links, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("the system does not tell which files are open")
		}
		n := 0
		for _, l := range links {
			if to, _ := os.Readlink("/proc/self/fd/" + l.Name()); to == path {
				n++
			}
		}
		if n >= 2 {
			return
		}
	}
	t.Fatal("nobody opened the file")
}
