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

// An info is the value of one of our keys. Foreign keys have none. Only Shared and Slots affect the
// lock.
type info struct {
	Format int    `json:"snib"` // of this format: 1
	ID     string `json:"id"`
	Shared bool   `json:"shared,omitempty"`
	Slots  int    `json:"slots,omitempty"`

	Host  string `json:"host,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Label string `json:"label,omitempty"`

	Kind driver.HolderKind `json:"kind,omitempty"`

	// MinHold is the etcd lease to which a release has attached the key for the rest of its MinHold.
	MinHold int64 `json:"minHold,omitempty"`

	// For people: etcd does not know the age of a key. In milliseconds since 1970, by the clock
	// of the process.
	Asked int64 `json:"asked"`
	Held  int64 `json:"held,omitempty"` // since when the lock is held; if it was waited for, 0 until its first renewal
}

// newInfo returns the info of a request that is made now.
func newInfo(req driver.Request) info {
	h := req.Holder
	return info{
		Format: 1, ID: req.ID, Shared: req.Shared, Slots: req.Slots,
		Host: h.Host, PID: h.PID, Label: h.Label, Kind: h.Kind, Asked: time.Now().UnixMilli(),
	}
}

func (i info) holder() driver.Holder {
	return driver.Holder{Host: i.Host, PID: i.PID, Label: i.Label, Kind: i.Kind}
}

// encode returns the value of the key.
func (i info) encode() string {
	text, _ := json.Marshal(i) // strings and numbers can't fail
	return string(text)
}

// An entry is a holder or a waiter: a key under a lock's name.
type entry struct {
	key       string
	revision  int64 // that created it; decides its place in the queue and its tokens
	etcdLease int64
	info      info
}

// isKept reports whether the lock was released, and MinHold keeps it taken.
func (e entry) isKept() bool { return e.info.MinHold != 0 && e.etcdLease == e.info.MinHold }

// holder describes the process that has or had the entry.
func (e entry) holder() driver.Holder {
	h := e.info.holder()
	if e.isKept() {
		h.Kind = driver.KindKept
	}
	return h
}

// keyOf returns the key of an attempt. It begins like a key of package concurrency, with the
// etcd lease in hexadecimal.
func keyOf(name string, etcdLease int64, nonce string) string {
	return prefixOf(name) + strconv.FormatInt(etcdLease, 16) + "." + nonce
}

// parseEntry reads a key. Every key counts as a holder or a waiter, also a foreign one. known
// reports whether the key is ours or that of package concurrency, for callers that read keys which
// may not be locks.
func parseEntry(kv *mvccpb.KeyValue) (e entry, known bool) {
	e = entry{key: string(kv.Key), revision: kv.CreateRevision, etcdLease: kv.Lease}
	_, last := splitKey(e.key)
	var i info
	if strings.Contains(last, ".") && json.Unmarshal(kv.Value, &i) == nil && i.Format == 1 {
		e.info = i
		return e, e.etcdLease != 0
	}
	e.info.ID = last
	return e, e.etcdLease != 0 && last == strconv.FormatInt(kv.Lease, 16)
}

// splitKey returns the name of the lock that a key belongs to, and the rest.
func splitKey(key string) (name, last string) {
	i := strings.LastIndexByte(key, '/')
	return key[:max(i, 0)], key[i+1:]
}

// A queue is the holders and waiters of a lock, in the order of their creation.
type queue []entry

// parseQueue reads the keys of a lock. It skips those of locks whose names begin with this name
// and a slash.
func parseQueue(name string, kvs []*mvccpb.KeyValue) queue {
	q := make(queue, 0, len(kvs))
	for _, kv := range kvs {
		if isKeyOf(kv.Key, name) {
			e, _ := parseEntry(kv)
			q = append(q, e)
		}
	}
	slices.SortFunc(q, func(a, b entry) int { return cmp.Compare(a.revision, b.revision) })
	return q
}

// isKeyOf reports whether a key with the prefix prefixOf(name) belongs to that lock.
func isKeyOf(key []byte, name string) bool {
	return strings.IndexByte(string(key[len(name)+1:]), '/') < 0
}

// find returns the index of a key, or -1.
func (q queue) find(key string) int {
	return slices.IndexFunc(q, func(e entry) bool { return e.key == key })
}

// A verdict is what the queue says of a request.
type verdict int

const (
	waits verdict = iota
	granted
	gone // its key no longer exists
)

// A holderSet describes the holders before a place in a queue.
type holderSet struct {
	count     int
	least     int  // number of slots that one of them asked for; 0 if they are no semaphore
	exclusive bool // one of them admits no reader
}

// add adds e to the holders.
func (s *holderSet) add(e entry) {
	if s.count++; s.count == 1 || e.info.Slots < s.least {
		s.least = e.info.Slots
	}
	s.exclusive = s.exclusive || !e.info.Shared
}

// admits reports whether one more holder of this kind can hold the lock beside the others.
func (s *holderSet) admits(i info) bool {
	switch {
	case i.Slots > 0:
		return s.count == 0 || s.count < min(s.least, i.Slots)
	case i.Shared:
		return !s.exclusive
	}
	return s.count == 0
}

// judge returns the verdict on a request, given that all entries of q came before it, and an error
// if the request can't be served. The first entry decides of which kind the lock is. A later one of
// another kind leaves when it notices, and until then those behind it wait.
func (q queue) judge(i info) (verdict, error) {
	var holders holderSet
	mixed := false
	for k, e := range q {
		clash := (e.info.Slots > 0) != (i.Slots > 0)
		switch {
		case e.etcdLease == 0:
			return waits, fmt.Errorf("%w: the key %q is no lock: it has no lease", driver.ErrKind, e.key)
		case k == 0 && clash:
			return waits, driver.KindError(e.info.Slots)
		}
		mixed = mixed || clash
		holders.add(e)
	}
	if holders.admits(i) && !mixed {
		return granted, nil
	}
	return waits, nil
}

// split returns the holders and the waiters.
func (q queue) split() (holders, waiters queue) {
	var set holderSet
	for i, e := range q {
		if !set.admits(e.info) {
			return q[:i], q[i:]
		}
		set.add(e)
	}
	return q, nil
}
