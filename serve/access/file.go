package access

import (
	"fmt"
	"io"
	"os"
)

// maxFileSize keeps a device or a log from being read by mistake.
const maxFileSize = 4 << 20

// loadFile reads a file. If it is our own, strangers must not be able to read or change it.
func loadFile(path, what string, isOwn bool) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if isOwn {
		if err := checkMode(path, what, info.Mode()); err != nil {
			return nil, err
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", what, err)
	case len(data) > maxFileSize:
		return nil, fmt.Errorf("%s, %s, is larger than %d MiB", what, path, maxFileSize>>20)
	}
	return data, nil
}
