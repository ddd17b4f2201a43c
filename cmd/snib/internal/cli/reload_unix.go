//go:build unix

package cli

import (
	"os"
	"syscall"
)

// reloadSignals returns the signals that make snib serve read its files again.
func reloadSignals() []os.Signal { return []os.Signal{syscall.SIGHUP} }
