//go:build !linux

package etcdtest

import "errors"

// lock fails: servers run on Linux only.
func lock(string) (unlock func(), err error) { return nil, errors.ErrUnsupported }
