package zklock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

// stay replaces the node of a hold by one that belongs to no session, in the same place of the
// line, and stays for some time: this process may be gone by then. Whoever comes to it when its
// time is over deletes it; so does this driver, if it still runs, in its next session if this one
// has ended.
//
// In its name stands that it is kept, and in its data for how long. Those who watch the old one find it when they look again.
func (h *hold) stay(ctx context.Context, left time.Duration) error {
	due := driver.Now().Add(left)
	path := child(h.folder, keptMark+newID()+strings.TrimPrefix(node(h.path), prefix)[idLength:])
	data := newInfo(h.req)
	data.Kept = left
	replace := func(conn *zk.Conn) (struct{}, error) {
		_, err := conn.Multi(
			&zk.CreateRequest{Path: path, Data: data.encode(), Acl: h.s.d.conf.acl, Flags: zk.FlagPersistent},
			&zk.DeleteRequest{Path: h.path, Version: -1},
		)
		return struct{}{}, err
	}
	for again := false; ; again = true {
		_, _, err := do(ctx, h.s, replace)
		switch {
		case err == nil, again && errors.Is(err, zk.ErrNodeExists): // the answer before was lost
			h.s.sweep(&orphan{folder: h.folder, path: path, kept: true, due: due})
			return nil
		case errors.Is(err, errApart) && ctx.Err() == nil:
		case errors.Is(err, zk.ErrNoNode), errors.Is(err, errOver):
			return h.late(err)
		default:
			h.bury(due) // as long as the session lasts, it stays so
			h.s.sweep(&orphan{folder: h.folder, path: path, kept: true, due: due})
			return err
		}
	}
}

// outlast deletes a node that was kept if its time is over, and says how long that will be otherwise. It is told by the leader's
// clock, of which we have seen one moment: when our own node was made.
func (a *attempt) outlast(ctx context.Context, c contender) (left time.Duration, err error) {
	if a.stat.Czxid == 0 {
		if err := a.recognise(ctx, a.inspect()); err != nil {
			return 0, err
		}
	}
	path := child(a.folder, c.node)
	seen, _, err := do(ctx, a.s, read(path))
	if errors.Is(err, zk.ErrNoNode) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	now := a.stat.Ctime + driver.Now().Sub(a.born).Milliseconds()
	left = decode(seen.data).Kept - time.Duration(now-seen.stat.Ctime)*time.Millisecond
	if left > 0 {
		return left + time.Millisecond, nil // both moments were rounded
	}
	_, _, err = do(ctx, a.s, remove(path))
	if errors.Is(err, zk.ErrNoNode) {
		err = nil
	}
	return 0, err
}
