package pglock

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// A fast path takes a free lock, or gives one up. The fast paths of concurrent callers go to the
// server together, as one transaction, which skips the rows that others have locked. A request that
// a fast path can't serve takes a statement of its own.

// A taking is the request of an attempt for a lock that may be free, and the answer.
type taking struct {
	name, nonce string
	slots       int
	ttl, tokens int64
	entry       string

	granted  bool
	created  bool // the row is new
	token    int64
	waiters  string         // the column
	start    driver.Instant // our clock before the request was sent
	repeated bool           // the server may execute the request once more
	err      error
}

// take takes the lock if its row is empty, or has only waiters and this attempt is the first of
// them. Otherwise it returns nil.
func (d *Driver) take(ctx context.Context, a *attempt) (*lease, error) {
	encoded, err := d.encode(a)
	if err != nil {
		return nil, err
	}
	t := &taking{
		name: a.Req.Name, nonce: a.Entry.Nonce, slots: a.Req.Slots,
		ttl: a.Req.TTL.Microseconds(), tokens: int64(a.Req.Tokens), entry: encoded,
	}
	a.MarkSent()
	if err := d.takings.Do(ctx, t); err != nil {
		return nil, err
	}
	if t.repeated {
		a.MarkRepeated()
	}
	if !t.granted || t.err != nil {
		return nil, t.err
	}
	if t.created {
		d.rows.NoteNewRow()
	}
	h, found := a.Entry, state{}
	if found.Waiters, err = parseEntries("waiters", t.waiters); err != nil {
		return nil, d.rowError(t.name, err)
	}
	h.Token, h.Tokens = uint64(t.token), a.Req.Tokens
	return a.Grant(h, t.start, found.OthersWait(d.rows.ID)), nil
}

// encode returns the entry of an attempt as it is stored.
func (d *Driver) encode(a *attempt) (string, error) {
	encoded, err := json.Marshal(newEntry{a.Entry, d.channel()})
	return string(encoded), err
}

// takeAll answers takings.
func (d *Driver) takeAll(ctx context.Context, batch []*taking) {
	driverkit.IsolateAll(batch, isMalformed, func(some []*taking) error { return d.sendTakings(ctx, some) },
		func(t *taking, err error) { t.err = d.rowError(t.name, err) })
}

// sendTakings sends takings in one statement.
func (d *Driver) sendTakings(ctx context.Context, some []*taking) error {
	start := driver.Now() // before the request: the lease must not seem to start later than it does
	repeated := func() {
		for _, t := range some {
			t.repeated = true
		}
	}
	reset := func() {
		for _, t := range some {
			t.granted = false
		}
	}
	if t := some[0]; len(some) == 1 {
		args := []any{t.name, t.nonce, t.slots, t.ttl, t.tokens, t.entry}
		return d.run(ctx, repeated, reset, d.sql.TakeOne, args, func(row pgx.Rows) error {
			t.granted, t.start = true, start
			return row.Scan(&t.token, &t.waiters)
		})
	}
	byNonce := make(map[string]*taking, len(some))
	for _, t := range some {
		byNonce[t.nonce] = t
	}
	return d.run(ctx, repeated, reset, d.sql.TakeAll, takingColumns(some), func(row pgx.Rows) error {
		var nonces, waiters []string
		var tokens []int64
		var created []bool
		err := row.Scan(&nonces, &tokens, &waiters, &created)
		for i, nonce := range nonces {
			if t := byNonce[nonce]; t != nil {
				t.granted, t.start = true, start
				t.token, t.waiters, t.created = tokens[i], waiters[i], created[i]
			}
		}
		return err
	})
}

// takingColumns returns the arguments of the statement takeAll.
func takingColumns(all []*taking) []any {
	var names, nonces, entries []string
	var slots, ttls, tokens []int64
	for _, t := range all {
		names, nonces, entries = append(names, t.name), append(nonces, t.nonce), append(entries, t.entry)
		slots, ttls, tokens = append(slots, int64(t.slots)), append(ttls, t.ttl), append(tokens, t.tokens)
	}
	return []any{names, nonces, slots, ttls, tokens, entries}
}

// A freeing is the release of a lease, and the answer. It frees nothing if MinHold keeps the lease,
// if the row has others, or if the next waiter is not exclusive.
type freeing struct {
	name, id string

	freed    bool
	repeated bool // the server may have executed it before
	err      error
}

// freeAll answers freeings.
func (d *Driver) freeAll(ctx context.Context, batch []*freeing) {
	driverkit.IsolateAll(batch, isMalformed, func(some []*freeing) error { return d.sendFreeings(ctx, some) },
		func(f *freeing, err error) { f.err = err })
}

// sendFreeings sends freeings in one statement.
func (d *Driver) sendFreeings(ctx context.Context, some []*freeing) error {
	reset := func() {
		for _, f := range some {
			f.freed = false
		}
	}
	repeated := func() {
		for _, f := range some {
			f.repeated = true
		}
	}
	if f := some[0]; len(some) == 1 {
		return d.run(ctx, repeated, reset, d.sql.FreeOne, []any{f.name, f.id}, func(pgx.Rows) error {
			f.freed = true
			return nil
		})
	}
	var names, ids []string
	for _, f := range some {
		names, ids = append(names, f.name), append(ids, f.id)
	}
	return d.run(ctx, repeated, reset, d.sql.FreeAll, []any{names, ids}, func(row pgx.Rows) error {
		var found []int64
		err := row.Scan(&found, nil)
		for _, i := range found {
			some[i-1].freed = true
		}
		return err
	})
}
