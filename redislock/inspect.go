package redislock

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
)

// A snapshot is what a script reports about one lock, or about a key that may be a lock.
type snapshot struct {
	Type     string         `json:"type"`
	Left     float64        `json:"left"` // milliseconds; -1 if the key has no end, -2 if there is no key
	Now      string         `json:"now"`
	Value    rediskit.Bytes `json:"value"`
	Grants   []string       `json:"grants"`
	Fields   []string       `json:"fields"` // of a hash: alternating with values
	Requests []string       `json:"requests"`
}

// Status implements [driver.Inspector]. A foreign key is shown as a hold whose token is 0. The
// id of a hold of Redisson is the field of its hash.
func (d *Driver) Status(ctx context.Context, name string) (driver.Status, error) {
	all, err := d.readStatuses(ctx, []string{name})
	if err != nil {
		return driver.Status{}, err
	}
	return all[0].Status, nil
}

// A lockStatus is the Status of a lock, and the snapshot that it was read from.
type lockStatus struct {
	driver.Status
	snapshot
}

// readStatuses returns the status of each lock. All of them lie in one slot.
func (d *Driver) readStatuses(ctx context.Context, names []string) ([]lockStatus, error) {
	if d.life.Over() {
		return nil, driver.ErrClosed
	}
	c := Call{Script: snapshotScript}
	for _, name := range names {
		keys := d.conf.namespace.keysOf(name)
		c.Keys = append(c.Keys, keys[:]...)
	}
	r := d.eval(ctx, c)[0]
	if r.Err != nil {
		return nil, r.Err
	}
	if len(r.Lines) != len(names) {
		return nil, fmt.Errorf("the script gave %d answers for %d locks", len(r.Lines), len(names))
	}
	all := make([]lockStatus, len(names))
	for i, name := range names {
		var s snapshot
		if err := json.Unmarshal([]byte(r.Lines[i]), &s); err != nil {
			return nil, fmt.Errorf("the script's answer for %q: %w", name, err)
		}
		all[i] = lockStatus{s.status(name), s}
	}
	return all, nil
}

func (s snapshot) status(name string) driver.Status {
	st := driver.Status{Name: name}
	now, _ := strconv.ParseInt(s.Now, 10, 64)
	slots, isSemaphore := strings.CutPrefix(string(s.Value), "snib:slots:")
	switch own, isOwn := parseGrant(string(s.Value)); {
	case s.Type == "none":
	case isSemaphore || s.Value == "snib:shared":
		st.Slots, _ = strconv.Atoi(slots) // or less than the least, see shared.lua
		st.Shared = !isSemaphore
		for _, text := range s.Grants {
			if end, r, ok := parseEntry(text); ok && end > now {
				if n, _ := strconv.Atoi(r.Mode); len(st.Holders) == 0 || n < st.Slots {
					st.Slots = n
				}
				st.Holders = append(st.Holders, r.holding(now, rediskit.Micros(end-now)))
			}
		}
		slices.SortFunc(st.Holders, func(a, b driver.Holding) int { return int(int64(a.Token) - int64(b.Token)) })
	case isOwn:
		st.Holders = []driver.Holding{own.holding(now, s.left())}
	default:
		st.Holders, st.Shared = s.foreignHolds(name)
	}

	for i, text := range s.Requests {
		since, r, ok := parseEntry(text)
		if !ok {
			continue
		}
		shared := r.Mode == modeShared
		if len(st.Holders) == 0 && i == 0 {
			st.Shared = shared
			st.Slots, _ = strconv.Atoi(r.Mode)
		}
		st.Waiters = append(st.Waiters, driver.Waiting{
			ID: r.ID, Shared: shared, Holder: r.holder(), Waited: max(0, rediskit.Micros(now-since)),
		})
	}
	return st
}

// left returns how long the lock's key will last.
func (s snapshot) left() time.Duration {
	if s.Left == -1 {
		return driver.NoExpiry
	}
	return fromMillis(s.Left)
}

func (r request) holding(now int64, left time.Duration) driver.Holding {
	held := max(0, rediskit.Micros(now-r.Since))
	return driver.Holding{ID: r.ID, Token: r.Token, Holder: r.holder(), Held: held, Left: left}
}

// Break implements [driver.Inspector]. A hold of a foreign client has the token 0. That of Redisson
// can't be broken: the error matches [driver.ErrKind].
func (d *Driver) Break(ctx context.Context, name, id string) error {
	keys := d.conf.namespace.keysOf(name)
	cmd := newCommand(&keys, codeBreak, encodeID(id), id)
	cmd.saved = true
	return d.sendUntilAnswered(ctx, d.slot(keys[0]), cmd)
}

// Withdraw implements [driver.Inspector].
func (d *Driver) Withdraw(ctx context.Context, name, id string) error {
	keys := d.conf.namespace.keysOf(name)
	return d.sendUntilAnswered(ctx, d.slot(keys[0]), newCommand(&keys, codeWithdraw, encodeID(id), ""))
}
