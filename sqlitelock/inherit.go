package sqlitelock

import (
	"context"
	"errors"
	"os"

	"github.com/sniblock/snib/driver"
)

// Inherit makes a lease of this driver one that child processes may keep, and returns a file for
// them. Name and id are those of [driver.Request], or Name and ID of a hold of package snib.
// The lock stays taken while a process that was started with the file (see
// [os/exec.Cmd.ExtraFiles]) has it open, also if the process that took the lease was killed.
//
// The file belongs to the lease: Release closes it, and frees the lock whoever has it open. So a
// hold whose children use it must not be handed over within the process.
//
// Inherit returns [driver.ErrLost] if the lease has ended, and errors.ErrUnsupported if it is
// detached, or on Windows, where children inherit no locks.
func (d *Driver) Inherit(ctx context.Context, name, id string) (*os.File, error) {
	if !canInherit {
		return nil, errors.ErrUnsupported
	}
	var file *os.File
	var refused error
	key := leaseKey{name, id}
	found, err := d.withLease(ctx, false, key, func(t *tx, l *leaseRow) (err error) {
		refused = nil
		switch file = d.side.file(l.liveByte); {
		case l.mode == modeInherit && file != nil:
			return nil
		case l.mode != modeProcess || !d.side.lockedHere(l.liveByte):
			refused = errors.ErrUnsupported
			return nil
		}
		at, err := t.newByte()
		if err != nil {
			return err
		}
		if file, err = t.lockNewFile(at); err != nil {
			return err
		}
		t.unlock(l.liveByte)
		t.after = append(t.after, func() { d.leases.Store(key, at) })
		return t.db.exec(inheritLease, at, l.name, l.token)
	})
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, driver.ErrLost
	case refused != nil:
		return nil, refused
	}
	return file, nil
}
