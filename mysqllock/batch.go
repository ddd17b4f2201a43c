package mysqllock

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// A fast path takes a free exclusive lock, or gives one up. Where the server can run batches, the
// fast paths of concurrent callers go to it together, in one statement with one flush of the log.
// The statement skips the rows that others have locked. A request that is not served in a batch
// takes a statement of its own.

// A taking is the request of an attempt for a lock that may be free, and the answer.
type taking struct {
	Name   []byte `json:"name"`
	Nonce  string `json:"nonce"`
	Tokens int    `json:"tokens"`
	TTL    int64  `json:"ttl"`
	Line   []byte `json:"line"` // of the holder

	sent       bool
	granted    bool
	token      uint64
	othersWait bool
	start      driver.Instant // our clock before the request was sent
	repeated   bool           // the server may execute the request once more
	err        error
}

// take takes a free exclusive lock if nobody waits, or this attempt is the first waiter. Otherwise
// it returns neither a lease nor an error.
func (d *Driver) take(ctx context.Context, a *attempt) (*lease, error) {
	t := &taking{Name: []byte(a.Req.Name), Nonce: a.Entry.Nonce, Tokens: a.Entry.Tokens, TTL: d.rows.RowTTL(a.Req), Line: encode(a.Entry)}
	// A waiter goes alone. It is signaled before the lock's row is unlocked, and must wait for
	// that.
	if a.Queued || !d.store.batches.Load() {
		d.takeAll(ctx, []*taking{t})
	} else if err := d.takings.Do(ctx, t); err != nil {
		a.MarkSent() // it may be on its way in a batch
		return nil, err
	}
	if t.sent {
		a.MarkSent()
	}
	if t.repeated {
		a.MarkRepeated()
	}
	if t.err != nil || !t.granted {
		return nil, t.err
	}
	h := a.Entry
	h.Token = t.token
	return a.Grant(h, t.start, t.othersWait), nil
}

// takeAll answers takings.
func (d *Driver) takeAll(ctx context.Context, batch []*taking) {
	fail := func(t *taking, err error) { t.err = d.rowError(string(t.Name), err) }
	sendBatch(ctx, d.acquiring, batch, fail, func(some []*taking) error {
		ctx, cancel := driverkit.Detached(ctx)
		defer cancel()
		if len(some) == 1 {
			return d.takeOne(ctx, some[0])
		}
		return d.takeBatch(ctx, some)
	})
}

// takeOne answers a taking with a statement of its own.
func (d *Driver) takeOne(ctx context.Context, t *taking) error {
	t.sent, t.start = true, driver.Now() // before the request: the lease must not seem to start later than it does
	res, err := d.exec(ctx, d.sql.acquireFast, t.Tokens, t.TTL, t.Line, t.Name, []byte(t.Nonce))
	t.granted, t.token, t.othersWait = err == nil && res.rows > 0, uint64(res.id)/2, res.id%2 == 1
	t.repeated = t.repeated || res.repeated
	return err
}

// takeBatch answers takings with one statement. Of several for the same lock it sends the first.
func (d *Driver) takeBatch(ctx context.Context, some []*taking) error {
	byNonce := make(map[string]*taking, len(some))
	for _, t := range some {
		byNonce[t.Nonce], t.sent = t, true
	}
	forget := func() {
		for _, t := range some {
			t.granted = false
		}
	}
	start := driver.Now()
	sent := firstOfEach(some, func(t *taking) string { return string(t.Name) })
	repeated, err := d.runBatch(ctx, d.sql.acquireBatch, sent, forget, func(row *sql.Rows) error {
		var nonce string
		var token uint64
		var othersWait bool
		err := row.Scan(&nonce, &token, &othersWait)
		if t := byNonce[nonce]; t != nil {
			t.granted, t.start, t.token, t.othersWait = true, start, token, othersWait
		}
		return err
	})
	for _, t := range some {
		t.repeated = t.repeated || repeated
	}
	return err
}

// A freeing is the release of an exclusive lease, and the answer.
type freeing struct {
	Name  []byte `json:"name"`
	Token int64  `json:"token"`
	Least int64  `json:"least"` // MinHold

	freed    bool
	alone    bool // the last statement was for this release alone, and so has waited for the row
	repeated bool // an earlier statement, whose answer was lost, may have freed it
	err      error
}

// free ends an exclusive lease, or keeps it until MinHold has passed. maybeFreed reports that a
// try without an answer may have done that before.
func (d *Driver) free(ctx context.Context, l *lease) (freed, maybeFreed bool, err error) {
	f := &freeing{Name: []byte(l.Req.Name), Token: int64(l.Grant().Token), Least: l.Req.MinHold.Microseconds()}
	if d.store.batches.Load() {
		if err := d.freeings.Do(ctx, f); err != nil {
			return false, false, err
		}
	}
	if !f.freed && !f.alone && f.err == nil {
		d.freeAll(ctx, []*freeing{f})
	}
	return f.freed, f.repeated, f.err
}

// freeAll answers freeings. The context of a release is detached already.
func (d *Driver) freeAll(ctx context.Context, batch []*freeing) {
	sendBatch(ctx, d.releasing, batch, func(f *freeing, err error) { f.err = err }, func(some []*freeing) error {
		if len(some) == 1 {
			return d.freeOne(ctx, some[0])
		}
		return d.freeBatch(ctx, some)
	})
}

// freeOne answers a freeing with a statement of its own.
func (d *Driver) freeOne(ctx context.Context, f *freeing) error {
	res, err := d.exec(ctx, d.sql.releaseFast, f.Least, f.Least, f.Least, f.Least, f.Name, f.Token)
	f.freed, f.alone, f.repeated = err == nil && res.rows == 1, true, f.repeated || res.repeated
	return err
}

// freeBatch answers freeings with one statement. Of several for the same lock it sends the first.
func (d *Driver) freeBatch(ctx context.Context, some []*freeing) error {
	sent := firstOfEach(some, func(f *freeing) string { return string(f.Name) })
	byName := make(map[string]*freeing, len(sent))
	for _, f := range sent {
		byName[string(f.Name)] = f
	}
	forget := func() {
		for _, f := range some {
			f.freed = false
		}
	}
	repeated, err := d.runBatch(ctx, d.sql.releaseBatch, sent, forget, func(row *sql.Rows) error {
		var name string
		err := row.Scan(&name)
		if f := byName[name]; f != nil {
			f.freed = true
		}
		return err
	})
	for _, f := range some {
		f.repeated = f.repeated || repeated
	}
	return err
}

// sendBatch has send answer a batch on one of the connections of limit. A malformed row fails only
// its own request.
func sendBatch[T any](ctx context.Context, limit semaphore, batch []T, fail func(T, error), send func([]T) error) {
	driverkit.IsolateAll(batch, isMalformed, func(some []T) error {
		leave, err := limit.enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
		return send(some)
	}, fail)
}

// firstOfEach returns the first request of each lock.
func firstOfEach[T any](all []T, name func(T) string) (first []T) {
	seen := make(map[string]bool, len(all))
	for _, one := range all {
		if n := name(one); !seen[n] {
			seen[n] = true
			first = append(first, one)
		}
	}
	return first
}

// runBatch runs the statement of a batch, and calls scan for each row of its answer. The answer
// counts only if there is no error. Before each try, runBatch calls forget: what an earlier try
// has answered was rolled back, or is given again. repeated is that of [execResult].
func (d *Driver) runBatch(ctx context.Context, text string, batch any, forget func(), scan func(*sql.Rows) error) (repeated bool, err error) {
	encoded, err := json.Marshal(batch)
	if err != nil {
		return false, err
	}
	repeated, err = d.run(ctx, text, func(ctx context.Context, stmt *sql.Stmt) error {
		forget()
		rows, err := stmt.QueryContext(ctx, string(encoded))
		if err != nil {
			return err
		}
		return forEachRow(rows, scan)
	})
	if err != nil {
		forget()
	}
	return repeated, err
}
