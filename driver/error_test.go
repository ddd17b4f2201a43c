package driver_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/sniblock/snib/driver"
)

func TestInvalidf(t *testing.T) {
	err := driver.Invalidf("file: %w, which is number %d", fs.ErrNotExist, 1)
	if got, want := err.Error(), "invalid file: file does not exist, which is number 1"; got != want {
		t.Errorf("text = %q, want %q", got, want)
	}
	if !errors.Is(err, driver.ErrInvalid) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v does not match both ErrInvalid and what it wraps", err)
	}
	if errors.Is(err, driver.ErrClosed) {
		t.Errorf("%v matches ErrClosed", err)
	}
}
