package child

import "os"

// CanRedraw reports whether f is a terminal that knows the sequences to draw a line again.
func CanRedraw(f *os.File) bool { return os.Getenv("TERM") != "dumb" && knowsSequences(f) }

// withDescriptor calls use with the descriptor or handle of f, and reports whether use succeeded.
// The method Fd of f is not used: it may change the mode of a descriptor that we share with other
// processes.
func withDescriptor(f *os.File, use func(fd uintptr) error) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	var useErr error
	err = raw.Control(func(fd uintptr) { useErr = use(fd) })
	return err == nil && useErr == nil
}
