package fence_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
)

func openFile(t *testing.T, path string, token uint64, owner string) *fence.FileHandle {
	t.Helper()
	h, err := fence.File{Path: path}.Open(t.Context(), hold{"state", token, owner})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestFile(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	path := filepath.Join(dir, "state.json")
	old := openFile(t, path, 7, "old")
	if data, err := old.Read(ctx); !errors.Is(err, fs.ErrNotExist) || data != nil {
		t.Errorf("Read without a file = %q, %v; want ErrNotExist", data, err)
	}
	if err := old.Write(ctx, []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	later := openFile(t, link, 8, "later") // the same file by another name
	if err := old.Write(ctx, []byte("late")); !errors.Is(err, fence.ErrStale) {
		t.Errorf("Write of an old hold = %v, want ErrStale", err)
	}
	if _, err := old.Read(ctx); !errors.Is(err, fence.ErrStale) {
		t.Errorf("Read of an old hold = %v, want ErrStale", err)
	}
	wrong := errors.New("wrong")
	err := later.Replace(ctx, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half of it")
		return wrong
	})
	if !errors.Is(err, wrong) {
		t.Errorf("Replace = %v, want the writer's error", err)
	}
	if data, err := later.Read(ctx); err != nil || string(data) != "one" {
		t.Errorf("Read after writes that failed = %q, %v; want what was there before", data, err)
	}
	if err := later.Write(ctx, []byte("two")); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	info, _ := os.Stat(path)
	if err != nil || string(data) != "two" || info.Mode().Perm() != 0o640 {
		t.Errorf("the file has %q, %v and mode %v; want what was written, and the mode that it had", data, err, info.Mode())
	}
	if target, err := os.Readlink(link); err != nil || target != path {
		t.Errorf("the link points to %q, %v", target, err)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) != 3 {
		t.Errorf("left in the folder: %q; want the file, the link and the marks", names)
	}
	if hidden, _ := filepath.Glob(filepath.Join(dir, ".*")); len(hidden) > 0 {
		t.Errorf("left in the folder: %q", hidden)
	}
	if _, err = (fence.File{Path: path}).Open(ctx, hold{"another", 9, "o"}); !errors.Is(err, driver.ErrInvalid) ||
		!strings.Contains(err.Error(), `"state"`) {
		t.Errorf("Open under another lock = %v, want ErrInvalid, and the lock that guards the file", err)
	}
}

// A mark that was not written completely leaves the one before as it was, also if the new bytes
// and the old ones together look like a mark.
func TestTornMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	marks := func() []byte {
		t.Helper()
		data, err := os.ReadFile(path + ".fence")
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	openFile(t, path, 7, "a")
	openFile(t, path, 8, "b")
	before := marks()
	openFile(t, path, 9, "c") // goes to the slot of 7
	after := marks()
	place := 0 // where the last mark begins
	for before[place] == after[place] {
		place++
	}
	for cut := place; cut < place+200; cut++ {
		torn := append(bytes.Clone(after[:cut]), before[cut:]...)
		want := uint64(8)
		if bytes.Equal(torn, after) {
			want = 9
		}
		if err := os.WriteFile(path+".fence", torn, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := fence.File{Path: path}.Open(t.Context(), hold{"state", 1, "old"})
		var refused *fence.RefusedError
		if !errors.As(err, &refused) || refused.Last.Token != want {
			t.Fatalf("cut at %d: Open of an old hold = %v, want it refused after %d", cut, err, want)
		}
	}
}

// A file that is no file of marks is not touched.
func TestForeignMarkFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	for _, content := range []string{"x", strings.Repeat("{}\n", 5000)} {
		if err := os.WriteFile(path+".fence", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := fence.File{Path: path}.Open(t.Context(), hold{"state", 7, "a"})
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), path+".fence") {
			t.Errorf("Open = %v, want ErrInvalid with the path", err)
		}
		if data, _ := os.ReadFile(path + ".fence"); string(data) != content {
			t.Error("the file was changed")
		}
	}
	if _, err := (fence.File{Path: filepath.Join(path, "missing", "state")}).Open(t.Context(), hold{"state", 1, "a"}); err == nil {
		t.Error("Open in a folder that does not exist = nil")
	}
}
