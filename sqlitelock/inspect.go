package sqlitelock

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
)

// Status implements [driver.Inspector].
func (d *Driver) Status(ctx context.Context, name string) (driver.Status, error) {
	var st driver.Status
	if err := d.view(ctx, func(db *conn) (err error) {
		st, err = d.status(db, name, sync.OnceValue(d.side.lockingProcesses))
		return err
	}); err != nil {
		return driver.Status{}, err
	}
	return st, nil
}

// List implements [driver.Inspector]. It reads page by page, so that a slow yield blocks
// nobody. Changes in the meantime may or may not be included.
func (d *Driver) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	for from, more := prefix, true; more; {
		var page []driver.Status
		err := d.view(ctx, func(db *conn) (err error) {
			page, from, more, err = d.page(db, prefix, from)
			return err
		})
		if err != nil {
			return err
		}
		for _, st := range page {
			if !yield(st) {
				return nil
			}
		}
	}
	return nil
}

// page returns the locks of the page of names that starts at from, and where the
// next page starts.
func (d *Driver) page(db *conn, prefix, from string) (page []driver.Status, next string, more bool, err error) {
	const size = 100
	var names []string
	err = db.query(selectNames, func(r row) { names = append(names, r.text(0)) }, from, size)
	if err != nil {
		return nil, "", false, err
	}
	processes := sync.OnceValue(d.side.lockingProcesses)
	for _, name := range names {
		if !strings.HasPrefix(name, prefix) {
			return page, "", false, nil // names are ordered by their bytes, so there are no more
		}
		st, err := d.status(db, name, processes)
		if err != nil {
			return nil, "", false, err
		}
		if len(st.Holders)+len(st.Waiters) > 0 {
			page = append(page, st)
		}
		next = name + "\x00" // the smallest name after this one
	}
	return page, next, len(names) == size, nil
}

// status is Status within a transaction. It calls processes only for a lease whose
// process is gone.
func (d *Driver) status(db *conn, name string, processes func() []lockingProcess) (driver.Status, error) {
	st := driver.Status{Name: name}
	q, err := readQueue(db, name, math.MaxInt64)
	if err != nil {
		return st, err
	}
	now := d.now()
	for _, w := range q.waiters {
		if !d.side.locked(w.liveByte) {
			continue
		}
		if len(st.Waiters) == 0 {
			st.Shared, st.Slots = w.shared, int(w.slots)
		}
		st.Waiters = append(st.Waiters, driver.Waiting{
			ID: w.id, Shared: w.shared, Holder: w.holder, Waited: time.Duration(max(0, now-w.since)),
		})
	}
	for _, l := range q.leases {
		if d.side.ended(l, now) {
			continue
		}
		if st.Shared = l.shared; len(st.Holders) == 0 || int(l.slots) < st.Slots {
			st.Slots = int(l.slots)
		}
		h := driver.Holding{
			ID: l.id, Token: uint64(l.token), Holder: l.holder,
			Held: time.Duration(max(0, now-l.since)), Left: time.Duration(max(0, l.deadline-now)),
		}
		if h.Inherited = l.mode == modeInherit && !d.side.locked(l.process); h.Inherited {
			h.Heirs = lockedBy(processes(), l.liveByte)
		}
		st.Holders = append(st.Holders, h)
	}
	return st, nil
}

// view calls fn within a read transaction on a separate connection.
func (d *Driver) view(ctx context.Context, fn func(*conn) error) error {
	ctx, end := d.during(ctx)
	defer end()
	for {
		err := d.inTime(ctx, answerTimeout, func(ctx context.Context) error { return d.startRead(ctx, fn) })
		if !isEmptied(err) && !errors.Is(err, errOtherRows) {
			return err
		}
		// Any transaction of the writer takes the rows over. This one also makes missing tables.
		if err := d.do(ctx, &op{run: (*tx).recreate}); err != nil {
			return err
		}
	}
}

// startRead calls read, and returns soon after ctx is done, also if the disk or another process
// blocks the reader. Then fn may run later.
func (d *Driver) startRead(ctx context.Context, fn func(*conn) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case <-d.readerFree:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	done := make(chan error, 1)
	go func() {
		err := d.read(fn)
		d.readerFree <- struct{}{}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errOtherRows means that the rows are of another boot, or rely on another sidecar.
var errOtherRows = errors.New("the rows are of another boot")

// read calls fn within a read transaction, unless the rows are those of errOtherRows.
func (d *Driver) read(fn func(*conn) error) (err error) {
	if err := d.checkIntact(); err != nil {
		return err
	}
	if d.reader == nil {
		if d.reader, err = connect(d.path, d.closed); err != nil {
			return d.explain(err)
		}
	}
	if err := d.reader.exec(beginRead); err != nil {
		return d.explain(err)
	}
	defer d.reader.exec(rollback) //nolint:errcheck // there is nothing to commit
	m, err := readMeta(d.reader)
	switch {
	case err != nil:
		return err
	case !d.matches(m):
		return errOtherRows
	}
	return fn(d.reader)
}
