//go:build unix

package backend

import "github.com/sniblock/snib/sqlitelock"

// inheritable returns the option with which the processes of a command keep the lock of a SQLite
// file, whatever becomes of us.
func inheritable() []sqlitelock.Option { return []sqlitelock.Option{sqlitelock.Inheritable()} }
