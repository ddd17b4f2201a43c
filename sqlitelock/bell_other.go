//go:build !linux

package sqlitelock

import (
	"errors"
	"io"
)

func signalChange(string) error                  { return errors.ErrUnsupported }
func watchChanges(string) (io.ReadCloser, error) { return nil, errors.ErrUnsupported }
