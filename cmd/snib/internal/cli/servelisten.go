package cli

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
)

// listen listens on the address of --listen, which checkListen has accepted.
func listen(address string) (l net.Listener, err error) {
	if path, ok := socketPath(address); ok {
		l, err = listenOnSocket(path)
	} else {
		l, err = net.Listen("tcp", address)
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, usagef("--listen %s: another program listens there; stop it, or give another address", printable(address))
	case err != nil:
		return nil, usagef("--listen %s: %w", printable(address), err)
	}
	return l, nil
}

// socketPath returns the path of an address unix:PATH.
func socketPath(address string) (string, bool) { return strings.CutPrefix(address, "unix:") }

// checkListen refuses an address that can't be right.
func checkListen(address string) error {
	if path, ok := socketPath(address); ok && path != "" {
		return nil
	}
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		return usagef("--listen %s: it must be HOST:PORT, such as 127.0.0.1:%s, or unix:PATH", printable(address), backend.ServicePort)
	}
	return nil
}

// listenOnSocket listens on a Unix socket that only its user can connect to. It makes the socket in
// a folder of its own and moves it: at no moment may others connect. A socket that a service has
// left there is replaced, unless somebody listens on it, and no other file is.
func listenOnSocket(path string) (net.Listener, error) {
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		_ = conn.Close() // it was only to see whether somebody listens
		return nil, syscall.EADDRINUSE
	case !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist):
		return nil, err // nobody could connect to the new one, such as with too long a path
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != os.ModeSocket {
		return nil, errors.New("there is a file that is no socket")
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".snib-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is empty but after an error
	hidden := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it has another name by then
	file, err := os.Lstat(hidden)
	if err := errors.Join(err, os.Chmod(hidden, 0o600), os.Rename(hidden, path)); err != nil {
		_ = l.Close()
		return nil, err
	}
	return &socket{UnixListener: l, path: path, file: file}, nil
}

// A socket removes its file in the end.
type socket struct {
	*net.UnixListener
	path   string
	file   fs.FileInfo
	closed atomic.Bool
}

// Close implements [net.Listener]. A service that started at the same time may have replaced the
// file, or somebody may have removed it. After the first call, another file may have its number.
func (s *socket) Close() error {
	if s.closed.Swap(true) {
		return net.ErrClosed
	}
	var err error
	if now, gone := os.Lstat(s.path); gone == nil && os.SameFile(now, s.file) {
		err = os.Remove(s.path)
	}
	return errors.Join(s.UnixListener.Close(), err)
}

// Addr implements [net.Listener].
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }
