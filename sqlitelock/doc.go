// Package sqlitelock keeps locks in an SQLite file that the processes of one host
// share. It needs no server, and runs on Linux, macOS and Windows.
//
//	d, err := sqlitelock.Open(ctx, "/var/lib/app/locks.db")
//	...
//	locker, err := snib.New(d)
//
// Its locks exclude all processes under one kernel that use the same file, also in containers that
// mount its folder; network file systems are refused. Locks of flock are others.
//
// A lease ends at its TTL unless it is renewed, and at once if its process dies or closes the
// driver, unless it is detached or [Driver.Inherit] has passed it on. [Mode] lets other users use a
// database that Open creates.
//
// The page docs/backends/sqlitelock.md has the tables, who waits for what, what happens in
// failures, and how the systems differ.
package sqlitelock
