//go:build unix

package child

import (
	"os"

	"golang.org/x/sys/unix"
)

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool {
	_, ok := windowSize(f)
	return ok
}

// knowsSequences reports whether f is a terminal: those that can't redraw have TERM=dumb.
func knowsSequences(f *os.File) bool { return IsTerminal(f) }

// Height returns the number of lines of the terminal f, or 0 if f is no terminal or does not know.
func Height(f *os.File) int {
	size, ok := windowSize(f)
	if !ok {
		return 0
	}
	return int(size.Row)
}

// Width returns the number of columns of the terminal f, or 0 if f is no terminal or does not
// know.
func Width(f *os.File) int {
	size, ok := windowSize(f)
	if !ok {
		return 0
	}
	return int(size.Col)
}

// windowSize returns the size of the terminal f, and whether f is one.
func windowSize(f *os.File) (size *unix.Winsize, ok bool) {
	ok = withDescriptor(f, func(fd uintptr) (err error) {
		size, err = unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ)
		return err
	})
	return size, ok
}
