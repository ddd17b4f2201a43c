package zklock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

// An info is the data of a node, as JSON. Only Kept affects the lock.
type info struct {
	ID    string `json:"id"`
	Host  string `json:"host,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Label string `json:"label,omitempty"`

	Kind driver.HolderKind `json:"kind,omitempty"`

	Kept time.Duration `json:"kept,omitempty"` // how long the node stays after its creation
}

func newInfo(req driver.Request) info {
	h := req.Holder
	return info{ID: printable(req.ID), Host: printable(h.Host), PID: h.PID, Label: printable(h.Label), Kind: h.Kind}
}

// printable replaces what JSON can't keep as it is.
func printable(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

func (i info) encode() []byte {
	data, _ := json.Marshal(i) // it has no field that could fail
	return data
}

// decode reads the data of a node. It shows foreign data, mostly an address, as it is.
func decode(data []byte) info {
	var i info
	if err := json.Unmarshal(data, &i); err != nil || i.ID == "" {
		text, _, _ := strings.Cut(printable(string(data)), "\x00")
		return info{Host: text[:min(len(text), 64)]}
	}
	i.Kept = min(i.Kept, maxKept)
	return i
}

// maxKept limits a time that is read from nodes, because other times are added to it.
const maxKept = 100 * 365 * 24 * time.Hour

// Status implements [driver.Inspector]. It does not show a node that MinHold has kept and whose
// time is over. It counts the time of a holder or waiter from the request, by our clock. A folder
// that is a semaphore of another library, and a node that belongs to no session, are shown as a
// hold without an id.
func (d *Driver) Status(ctx context.Context, name string) (driver.Status, error) {
	st := driver.Status{Name: name}
	if err := d.conf.checkName(name); err != nil {
		return st, err
	}
	s, done, ctx, err := d.inspector(ctx)
	if err != nil {
		return st, err
	}
	defer done()
	st, _, err = s.status(ctx, name)
	return st, d.explain(err, d.conf.folder(name))
}

// List implements [driver.Inspector]. It reads one lock after the other, so it may miss changes
// that are made meanwhile. If it may not read some locks, it lists all others, and then returns
// [zk.ErrNoAuth] for the first lock that it may not read.
func (d *Driver) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	s, done, ctx, err := d.inspector(ctx)
	if err != nil {
		return err
	}
	defer done()
	snap, _, err := do(ctx, s, listChildren(d.conf.root))
	if err != nil {
		return d.explain(err, d.conf.root)
	}
	var names []string
	for _, node := range snap.names {
		if name, ok := d.conf.lockName(node); ok && strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var denied error
	for _, name := range names {
		st, _, err := s.status(ctx, name)
		switch err = d.explain(err, d.conf.folder(name)); {
		case errors.Is(err, zk.ErrNoAuth):
			denied = cmp.Or(denied, err)
			continue
		case err != nil:
			return err
		}
		if len(st.Holders)+len(st.Waiters) > 0 && !yield(st) {
			return nil
		}
	}
	return denied
}

// Break implements [driver.Inspector]. It deletes the holder's node, whose name is never used
// again. It deletes nothing that is no lock.
func (d *Driver) Break(ctx context.Context, name, id string) error {
	if err := d.conf.checkName(name); err != nil {
		return err
	}
	s, done, ctx, err := d.inspector(ctx)
	if err != nil {
		return err
	}
	defer done()
	folder := d.conf.folder(name)
	st, nodes, err := s.status(ctx, name)
	if err != nil {
		return d.explain(err, folder)
	}
	for i, h := range st.Holders {
		if h.ID != id || id == "" { // those without an id are no locks
			continue
		}
		if err := s.deleteHold(ctx, child(folder, nodes[i])); !errors.Is(err, driver.ErrLost) {
			return d.explain(err, folder)
		}
	}
	return driver.ErrLost
}

// Withdraw implements [driver.Inspector]: the place of a dead process ends with its session.
func (d *Driver) Withdraw(context.Context, string, string) error { return errors.ErrUnsupported }

// deleteHold deletes the node of a hold. If it has gone, the error is ErrLost.
func (s *session) deleteHold(ctx context.Context, path string) error {
	_, _, err := do(ctx, s, deleteNode(path))
	if errors.Is(err, zk.ErrNoNode) {
		return driver.ErrLost
	}
	return err
}

// inspector returns a session whose server shows everything that was decided until now. The error
// is a [driver.ErrInvalid] if the root must exist and does not.
func (d *Driver) inspector(ctx context.Context) (s *session, done func(), alive context.Context, err error) {
	if err := d.life.Ready(ctx); err != nil {
		return nil, nil, ctx, err
	}
	ctx, cancel := d.life.During(ctx)
	if s, err = d.session(ctx); err == nil {
		err = s.catchUp(ctx)
	}
	if err == nil {
		err = s.checkRoot(ctx)
	}
	if err != nil {
		cancel()
		return nil, nil, ctx, d.explain(err, d.conf.root)
	}
	return s, cancel, ctx, nil
}

// checkRoot returns an error if the root must exist and does not.
func (s *session) checkRoot(ctx context.Context) error {
	if s.d.conf.makeRoot {
		return nil
	}
	there, _, err := do(ctx, s, func(conn *zk.Conn) (bool, error) {
		there, _, err := conn.Exists(s.d.conf.root)
		return there, err
	})
	if err == nil && !there {
		err = s.d.conf.missingRootError()
	}
	return err
}

// status reads the queue of a lock. It also returns the names of its holders' nodes.
func (s *session) status(ctx context.Context, name string) (driver.Status, []string, error) {
	st := driver.Status{Name: name}
	folder := s.d.conf.folder(name)
	list, _, err := do(ctx, s, listChildren(folder))
	if err != nil {
		return st, nil, err
	}
	semaphore, err := s.semaphoreIn(ctx, folder, list)
	if err != nil {
		return st, nil, err
	}
	if semaphore != "" {
		st.Holders = []driver.Holding{{Foreign: semaphore, Left: driver.NoExpiry}}
		return st, []string{""}, nil
	}
	all := parseQueue(list.names)
	snaps, err := s.snapshots(ctx, folder, all)
	if err != nil {
		return st, nil, err
	}
	var nodes []string
	var ahead []contender
	for i, c := range all {
		// It has gone meanwhile, or keeps nobody out.
		if snaps[i].stat.Czxid == 0 || c.lapsed(snaps[i]) {
			continue
		}
		if len(ahead) == 0 {
			st.Shared, st.Slots = c.mode == modeShared, c.slots
		}
		if v, err := judge(c, ahead); err == nil && v.granted {
			st.Slots = min(st.Slots, c.slots)
			nodes = append(nodes, c.node)
			st.Holders = append(st.Holders, s.newHolding(c, snaps[i]))
		} else {
			in := decode(snaps[i].data)
			st.Waiters = append(st.Waiters, driver.Waiting{
				ID: in.id(c), Shared: c.mode == modeShared, Holder: in.holder(), Waited: age(snaps[i].stat),
			})
		}
		ahead = append(ahead, c)
	}
	return st, nodes, nil
}

// lapsed reports whether a kept node has outlived its time by the clock of this host, and by so
// much that every contender sees it too. An acquisition judges by the leader's clock, and
// deletes the node.
func (c contender) lapsed(snap snapshot) bool {
	return c.kept && age(snap.stat) > decode(snap.data).Kept+250*time.Millisecond
}

// snapshots reads nodes. The snapshot of a node that has gone has no Czxid.
func (s *session) snapshots(ctx context.Context, folder string, all []contender) ([]snapshot, error) {
	snaps := make([]snapshot, len(all))
	err := inParallel(all, func(i int, c contender) (err error) {
		if snaps[i], _, err = do(ctx, s, readNode(child(folder, c.node))); errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		return err
	})()
	return snaps, err
}

func (s *session) newHolding(c contender, snap snapshot) driver.Holding {
	if c.isPersistent(snap) {
		return driver.Holding{Foreign: fmt.Sprintf("the node %s, which belongs to no session", printable(c.node)),
			Left: driver.NoExpiry}
	}
	in := decode(snap.data)
	h := driver.Holding{ID: in.id(c), Token: tokenOf(snap.stat.Czxid), Holder: in.holder(), Held: age(snap.stat)}
	// A holder that renews in time has at least two thirds of its lease left; a kept node has
	// what remains of MinHold.
	h.Left = leaseTTL(s.negotiatedTimeout()) * 2 / 3
	if c.kept {
		h.Left = max(0, in.Kept-h.Held)
	}
	return h
}

// age returns how long a node has existed.
func age(stat zk.Stat) time.Duration { return max(0, time.Since(time.UnixMilli(stat.Ctime))) }

// id returns the id, or the name of the node for a foreign one.
func (i info) id(c contender) string {
	if i.ID == "" {
		return c.node
	}
	return i.ID
}

func (i info) holder() driver.Holder {
	h := driver.Holder{Host: i.Host, PID: i.PID, Label: i.Label, Kind: i.Kind}
	if i.Kept > 0 {
		h.Kind = driver.KindKept
	}
	return h
}

// SessionTimeout returns the session timeout that the servers use, which is never less than the
// one that the options ask for. Its errors are those of Status.
func (d *Driver) SessionTimeout(ctx context.Context) (asked, granted time.Duration, err error) {
	s, done, _, err := d.inspector(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer done()
	return d.conf.timeout, s.negotiatedTimeout(), nil
}
