package etcdlock

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/sniblock/snib/driver"
)

// A note is the value of a key of ours. Strangers' keys have none. Only Shared and Slots decide anything.
type note struct {
	Format int    `json:"snib"` // of this: 1
	Owner  string `json:"owner"`
	Shared bool   `json:"shared,omitempty"`
	Slots  int    `json:"slots,omitempty"`

	Host  string `json:"host,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Label string `json:"label,omitempty"`

	// For people: etcd does not know how old a key is. Milliseconds since 1970 by the clock of the process.
	Asked int64 `json:"asked"`
	Held  int64 `json:"held,omitempty"` // since when it is held; 0 if nobody has noted it
}

// newNote is the note of a request that is made now.
func newNote(req driver.Request) note {
	h := req.Holder
	return note{
		Format: 1, Owner: req.Owner, Shared: req.Shared, Slots: req.Slots,
		Host: h.Host, PID: h.PID, Label: h.Label, Asked: time.Now().UnixMilli(),
	}
}

func (n note) holder() driver.Holder { return driver.Holder{Host: n.Host, PID: n.PID, Label: n.Label} }

// text returns the value of the key. A held one is held from the beginning.
func (n note) text(held bool) string {
	if n.Held = 0; held {
		n.Held = n.Asked
	}
	text, _ := json.Marshal(n) // strings and numbers can't fail
	return string(text)
}

// An entry is one holder or waiter: a key under a lock's name.
type entry struct {
	key      string
	revision int64 // that created it: its place in the queue, and what its tokens begin with
	lease    int64
	note     note
}

// keyOf returns the key of an attempt. It begins as that of package concurrency would, with the lease in hexadecimal digits.
func keyOf(name string, lease int64, nonce string) string {
	return prefixOf(name) + strconv.FormatInt(lease, 16) + "." + nonce
}

// entryOf reads a key. It counts as a holder or waiter whoever has put it; known says whether it is a key of ours, or of
// package concurrency, for those who look at keys that may be no locks.
func entryOf(kv *mvccpb.KeyValue) (e entry, known bool) {
	e = entry{key: string(kv.Key), revision: kv.CreateRevision, lease: kv.Lease}
	_, last := splitKey(e.key)
	var n note
	if strings.Contains(last, ".") && json.Unmarshal(kv.Value, &n) == nil && n.Format == 1 {
		e.note = n
		return e, e.lease != 0
	}
	e.note.Owner = last
	return e, e.lease != 0 && last == strconv.FormatInt(kv.Lease, 16)
}

// splitKey returns the name of the lock that a key belongs to, and what comes after.
func splitKey(key string) (name, last string) {
	i := strings.LastIndexByte(key, '/')
	return key[:max(i, 0)], key[i+1:]
}

// A queue is the holders and waiters of a lock, in the order of their creation.
type queue []entry

// queueOf reads the keys of a lock. Those of names that begin with this one and a slash are none of it.
func queueOf(name string, kvs []*mvccpb.KeyValue) queue {
	q := make(queue, 0, len(kvs))
	for _, kv := range kvs {
		if belongs(kv.Key, name) {
			e, _ := entryOf(kv)
			q = append(q, e)
		}
	}
	slices.SortFunc(q, byRevision)
	return q
}

func byRevision(a, b entry) int { return cmp.Compare(a.revision, b.revision) }

// belongs reports whether a key that begins with prefixOf(name) is one of that lock.
func belongs(key []byte, name string) bool {
	return strings.IndexByte(string(key[len(name)+1:]), '/') < 0
}

// find returns the place of a key, or -1.
func (q queue) find(key string) int {
	return slices.IndexFunc(q, func(e entry) bool { return e.key == key })
}

// A verdict says how a request stands.
type verdict int

const (
	waits verdict = iota
	granted
	clashes // with a lock of another kind
	gone    // its key is no more
)

// A front is what stands before a place in a queue.
type front struct {
	holders int
	alone   bool // one of them shares with nobody
}

// add moves the front behind e.
func (f *front) add(e entry) {
	f.holders++
	f.alone = f.alone || !e.note.Shared && e.note.Slots == 0
}

// admits reports whether one more of this kind can hold beside all that stands before.
func (f *front) admits(n note) bool {
	switch {
	case n.Slots > 0:
		return f.holders < n.Slots
	case n.Shared:
		return !f.alone
	}
	return f.holders == 0
}

// judge says how a request stands of which all in q came before.
func (q queue) judge(n note) verdict {
	var f front
	for _, e := range q {
		if e.note.Slots != n.Slots || e.lease == 0 {
			return clashes
		}
		f.add(e)
	}
	if f.admits(n) {
		return granted
	}
	return waits
}

// clash says why a request for a lock of this kind can't be served.
func (q queue) clash(n note) error {
	for _, e := range q {
		switch {
		case e.lease == 0:
			return fmt.Errorf("%w: the key %q is no lock: it has no lease", driver.ErrKind, e.key)
		case e.note.Slots == n.Slots:
		case e.note.Slots == 0:
			return fmt.Errorf("%w: the name is in use as a lock and not as a semaphore", driver.ErrKind)
		default:
			return fmt.Errorf("%w: the name is in use as a semaphore of %d slots", driver.ErrKind, e.note.Slots)
		}
	}
	return driver.ErrKind
}

// split returns who holds and who waits.
func (q queue) split() (holders, waiters queue) {
	var f front
	for i, e := range q {
		if !f.admits(e.note) {
			return q[:i], q[i:]
		}
		f.add(e)
	}
	return q, nil
}
