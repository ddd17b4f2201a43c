package backend

import "github.com/sniblock/snib/sqlitelock"

// inheritable returns no option: a process can't inherit the lock of a SQLite file. It needs none,
// because all processes of a command end with us.
func inheritable() []sqlitelock.Option { return nil }
