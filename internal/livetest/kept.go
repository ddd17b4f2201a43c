package livetest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Kept returns the path of a file or a folder in snib's part of the user's cache folder. If there
// is nothing with that name, create makes it at another path. It appears only when it is complete,
// and nothing is left of it if create fails. Meanwhile, others that want it wait until their ctx is
// done.
func Kept(ctx context.Context, name string, create func(unfinished string) error) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	kept := filepath.Join(cache, "snib", name)
	unlock, err := lockFile(ctx, kept+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(kept); !errors.Is(err, fs.ErrNotExist) {
		return kept, err
	}
	unfinished := kept + ".part"
	defer os.RemoveAll(unfinished)                   //nolint:errcheck // the next call tries again
	if err := os.RemoveAll(unfinished); err != nil { // of a process that was killed
		return "", err
	}
	if err := create(unfinished); err != nil {
		return "", err
	}
	return kept, os.Rename(unfinished, kept)
}
