package zklock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

// keepForMinHold replaces the node of a lease by one that belongs to no session and takes the
// same place in the queue. The new node stays for the time left, because this process may end
// before. After that time, the next contender that finds the node deletes it. So does this
// driver, if it still runs, in its next session if this one has ended.
//
// The name of the new node says that it is kept, and its data says for how long. Waiters that
// watch the old node find the new one when they check the queue again.
func (l *lease) keepForMinHold(ctx context.Context, left time.Duration) error {
	due := driver.Now().Add(left)
	path := child(l.folder, keptPrefix+newID()+strings.TrimPrefix(baseName(l.path), nodePrefix)[idLength:])
	data := l.info()
	data.Kept = left
	replace := func(conn *zk.Conn) (struct{}, error) {
		_, err := conn.Multi(
			&zk.CreateRequest{Path: path, Data: data.encode(), Acl: l.s.d.conf.acl, Flags: zk.FlagPersistent},
			&zk.DeleteRequest{Path: l.path, Version: -1},
		)
		return struct{}{}, err
	}
	for retry := false; ; retry = true {
		_, _, err := do(ctx, l.s, replace)
		switch {
		// ErrNodeExists of a second try: the answer to the first one was lost.
		case err == nil, retry && errors.Is(err, zk.ErrNodeExists):
			l.s.addOrphan(&orphan{folder: l.folder, path: path, kept: true, due: due})
			return nil
		case errors.Is(err, errDisconnected) && ctx.Err() == nil:
		case errors.Is(err, zk.ErrNoNode), errors.Is(err, errSessionOver):
			return l.lostBeforeRelease(err)
		default:
			l.deleteLater(due) // as long as the session lives, the lock stays taken
			l.s.addOrphan(&orphan{folder: l.folder, path: path, kept: true, due: due})
			return err
		}
	}
}

// reapKept deletes a kept node if its time is over; otherwise it returns how much is left. It
// measures by the leader's clock, which it knows from the moment when our own node was created.
func (a *attempt) reapKept(ctx context.Context, c contender) (left time.Duration, err error) {
	path := child(a.folder, c.node)
	snap, _, err := do(ctx, a.s, readNode(path))
	if errors.Is(err, zk.ErrNoNode) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	now := a.stat.Ctime + driver.Now().Sub(a.createdAt).Milliseconds()
	left = decode(snap.data).Kept - time.Duration(now-snap.stat.Ctime)*time.Millisecond
	if left > 0 {
		return left + time.Millisecond, nil // both times were rounded
	}
	_, _, err = do(ctx, a.s, deleteNode(path))
	if errors.Is(err, zk.ErrNoNode) {
		err = nil
	}
	return 0, err
}
