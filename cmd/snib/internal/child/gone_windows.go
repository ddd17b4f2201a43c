package child

import (
	"errors"

	"golang.org/x/sys/windows"
)

// Gone reports whether the process pid certainly does not exist.
func Gone(pid int) bool {
	process, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(pid))
	if err != nil { // access denied means that it exists
		return errors.Is(err, windows.ERROR_INVALID_PARAMETER)
	}
	defer windows.CloseHandle(process) //nolint:errcheck // nothing was written
	// A process that has ended can be opened for as long as somebody has a handle of it.
	state, err := windows.WaitForSingleObject(process, 0)
	return err == nil && state == windows.WAIT_OBJECT_0
}
