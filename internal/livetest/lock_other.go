//go:build !linux

package livetest

import "errors"

// LockFile fails: servers run on Linux only.
func LockFile(string) (unlock func(), err error) { return nil, errors.ErrUnsupported }
