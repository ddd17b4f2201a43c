package zklock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

// An info is the data of a node, as JSON. Nothing in it decides anything, but for Stays and Kept.
type info struct {
	Owner string        `json:"owner"`
	Host  string        `json:"host,omitempty"`
	PID   int           `json:"pid,omitempty"`
	Label string        `json:"label,omitempty"`
	Stays bool          `json:"stays,omitempty"` // another node may take its place when it goes, for MinHold
	Kept  time.Duration `json:"kept,omitempty"`  // for how long the node stays, from when it was made
}

func newInfo(req driver.Request) info {
	h := req.Holder
	return info{Owner: printable(req.Owner), Host: printable(h.Host), PID: h.PID, Label: printable(h.Label), Stays: req.MinHold > 0}
}

// printable makes of what people wrote something that JSON keeps as it is.
func printable(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

func (i info) encode() []byte {
	data, _ := json.Marshal(i) // it has nothing that could not be written
	return data
}

// decode reads the data of a node. That of strangers, an address mostly, is shown as it is.
func decode(data []byte) info {
	var i info
	if err := json.Unmarshal(data, &i); err != nil || i.Owner == "" {
		text, _, _ := strings.Cut(printable(string(data)), "\x00")
		return info{Host: text[:min(len(text), 64)]}
	}
	return i
}

// Ping connects, if there is no session, and reports what is wrong: with the way to the ensemble, or as [driver.ErrInvalid] with
// the options, such as a root that does not exist.
func (d *Driver) Ping(ctx context.Context) error {
	s, done, ctx, err := d.inspector(ctx)
	if err != nil {
		return err
	}
	defer done()
	there, _, err := do(ctx, s, func(conn *zk.Conn) (bool, error) {
		ok, _, err := conn.Exists(d.conf.root)
		return ok, err
	})
	if err == nil && !there && !d.conf.makeRoot {
		err = d.conf.noRoot()
	}
	return d.explain(err, d.conf.root)
}

// Status implements [driver.Inspector]. A node that MinHold has kept, and whose time is over, is
// not shown. How long somebody has held or waited is counted from the request, and by our clock.
func (d *Driver) Status(ctx context.Context, name string) (driver.Status, error) {
	st := driver.Status{Name: name}
	s, done, ctx, err := d.inspector(ctx)
	if err != nil {
		return st, err
	}
	defer done()
	st, _, err = s.status(ctx, name)
	return st, d.explain(err, d.conf.folder(name))
}

// List implements [driver.Inspector]. It reads one lock after the other; what changes in the meantime is seen or not.
// Locks that we may not look at keep it from none of the others, and are told of in the end: by [zk.ErrNoAuth], of the first.
func (d *Driver) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	s, done, ctx, err := d.inspector(ctx)
	if err != nil {
		return err
	}
	defer done()
	seen, _, err := do(ctx, s, children(d.conf.root))
	if err != nil {
		return d.explain(err, d.conf.root)
	}
	var names []string
	for _, node := range seen.names {
		if name, ok := d.conf.lockName(node); ok && strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var hidden error
	for _, name := range names {
		st, _, err := s.status(ctx, name)
		switch err = d.explain(err, d.conf.folder(name)); {
		case errors.Is(err, zk.ErrNoAuth):
			hidden = cmp.Or(hidden, err)
			continue
		case err != nil:
			return err
		}
		if len(st.Holders)+len(st.Waiters) > 0 && !yield(st) {
			return nil
		}
	}
	return hidden
}

// Break implements [driver.Inspector]. It deletes the holder's node, whose name is never given again.
func (d *Driver) Break(ctx context.Context, name, owner string, token uint64) error {
	s, done, ctx, err := d.inspector(ctx)
	if err != nil {
		return err
	}
	defer done()
	st, nodes, err := s.status(ctx, name)
	if err != nil {
		return d.explain(err, d.conf.folder(name))
	}
	for i, h := range st.Holders {
		if h.Token == token && h.Owner == owner {
			_, _, err := do(ctx, s, remove(child(d.conf.folder(name), nodes[i])))
			if errors.Is(err, zk.ErrNoNode) {
				err = driver.ErrLost
			}
			return d.explain(err, d.conf.folder(name))
		}
	}
	return driver.ErrLost
}

// inspector returns a session whose server shows all that was decided until now.
func (d *Driver) inspector(ctx context.Context) (s *session, done func(), alive context.Context, err error) {
	if err := d.life.Ready(ctx, d.bad); err != nil {
		return nil, nil, ctx, err
	}
	ctx, cancel := d.life.During(ctx)
	if s, err = d.session(ctx); err == nil {
		_, err = s.catchUp(ctx)
	}
	if err != nil {
		cancel()
		return nil, nil, ctx, d.explain(err, d.conf.root)
	}
	return s, cancel, ctx, nil
}

// status reads the line of a lock, and returns the nodes of its holders as well.
func (s *session) status(ctx context.Context, name string) (driver.Status, []string, error) {
	st := driver.Status{Name: name}
	folder := s.d.conf.folder(name)
	list, _, err := do(ctx, s, children(folder))
	if err != nil {
		return st, nil, err
	}
	all := line(list.names)
	seen, err := s.sights(ctx, folder, all)
	if err != nil {
		return st, nil, err
	}
	var nodes []string
	var ahead []contender
	for i, c := range all {
		if seen[i].stat.Czxid == 0 || c.lapsed(seen[i]) { // it has gone meanwhile, or keeps nobody out
			continue
		}
		if v, err := judge(c, ahead); err == nil && v.granted {
			nodes = append(nodes, c.node)
			st.Holders = append(st.Holders, s.holding(c, seen[i]))
		} else {
			in := decode(seen[i].data)
			st.Waiters = append(st.Waiters, driver.Waiting{
				Owner: in.owner(c), Shared: c.mode == modeShared, Holder: in.holder(), Waited: age(seen[i].stat),
			})
		}
		if len(ahead) == 0 {
			st.Shared, st.Slots = c.mode == modeShared, c.slots
		}
		ahead = append(ahead, c)
	}
	return st, nodes, nil
}

// lapsed reports whether a kept node has outlived its time by the clock of this host, and by so
// much that whoever wants the lock sees it too. An acquisition judges by the leader's clock, and
// deletes it.
func (c contender) lapsed(seen sight) bool {
	return c.kept && age(seen.stat) > decode(seen.data).Kept+250*time.Millisecond
}

// sights looks at nodes. One that has gone has no Czxid.
func (s *session) sights(ctx context.Context, folder string, all []contender) ([]sight, error) {
	seen, errs := make([]sight, len(all)), make([]error, len(all))
	var looking sync.WaitGroup
	atOnce := make(chan struct{}, 16)
	for i, c := range all {
		atOnce <- struct{}{}
		looking.Go(func() {
			defer func() { <-atOnce }()
			seen[i], _, errs[i] = do(ctx, s, read(child(folder, c.node)))
			if errors.Is(errs[i], zk.ErrNoNode) {
				errs[i] = nil
			}
		})
	}
	looking.Wait()
	return seen, cmp.Or(errs...)
}

func (s *session) holding(c contender, seen sight) driver.Holding {
	in := decode(seen.data)
	h := driver.Holding{Owner: in.owner(c), Token: uint64(seen.stat.Czxid), Holder: in.holder(), Held: age(seen.stat)}
	// At any moment two thirds of the lease of who renews in time are left, and of one that is kept what was not used up.
	h.Left = s.lifetime() * 2 / 3
	if c.kept {
		h.Left = max(0, in.Kept-h.Held)
	}
	return h
}

// age is how long a node exists.
func age(stat zk.Stat) time.Duration { return max(0, time.Since(time.UnixMilli(stat.Ctime))) }

// owner of a stranger's node is the node.
func (i info) owner(c contender) string {
	if i.Owner == "" {
		return c.node
	}
	return i.Owner
}

func (i info) holder() driver.Holder { return driver.Holder{Host: i.Host, PID: i.PID, Label: i.Label} }
