package livetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lockFile waits until no other process has the file locked, and locks it, unless ctx is done
// before. The lock ends with the process at the latest.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || ctx.Err() != nil {
			_ = f.Close() // nothing was written
			return nil, errors.Join(context.Cause(ctx), err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(PollPause(0)):
		}
	}
}
