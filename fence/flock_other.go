//go:build !darwin && !dragonfly && !freebsd && !illumos && !linux && !netbsd && !openbsd

package fence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

const noFollow = 0

func flock(context.Context, *os.File) error {
	return fmt.Errorf("fence: files can't be guarded on this system: %w", errors.ErrUnsupported)
}

func keepOwner(_ *os.File, old fs.FileInfo) fs.FileMode { return old.Mode().Perm() }
