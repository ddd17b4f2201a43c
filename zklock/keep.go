package zklock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

// keepForMinHold replaces the node of a hold by one that belongs to no session and takes the
// same place in the queue. The new node stays for the time left, because this process may end
// before. After that time, the next contender that finds the node deletes it, or this session if it
// still lives. If the node of the hold was gone before, the error matches ErrLost.
//
// The name of the new node says that it is kept, and its data says for how long. Waiters that
// watch the old node find the new one when they check the queue again.
func (l *lease) keepForMinHold(ctx context.Context, left time.Duration) error {
	place := strings.TrimPrefix(baseName(l.path), nodePrefix)[idLength:]
	kept := &orphan{
		folder: l.folder, path: child(l.folder, keptPrefix+newID()+place), due: driver.Now().Add(left),
	}
	data := l.info()
	data.Kept = left
	replace := func(conn *zk.Conn) (struct{}, error) {
		_, err := conn.Multi(
			&zk.CreateRequest{Path: kept.path, Data: data.encode(), Acl: l.s.d.conf.acl, Flags: zk.FlagPersistent},
			&zk.DeleteRequest{Path: l.path, Version: -1},
		)
		return struct{}{}, err
	}
	for retry := false; ; retry = true {
		_, _, err := do(ctx, l.s, replace)
		switch {
		// The answer to an earlier try was lost. The kept node exists, or a contender has deleted it
		// since. A hold that was lost meanwhile looks the same.
		case err == nil, retry && (errors.Is(err, zk.ErrNodeExists) || errors.Is(err, zk.ErrNoNode)):
			l.s.addOrphan(kept)
			return nil
		case errors.Is(err, errDisconnected) && ctx.Err() == nil:
		case errors.Is(err, zk.ErrNoNode):
			return fmt.Errorf("%w: %w", driver.ErrLost, err)
		default:
			l.s.addOrphan(kept) // it may exist
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
	now := a.stat.Ctime + driver.Now().SubMono(a.createdAt).Milliseconds()
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
