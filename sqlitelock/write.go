package sqlitelock

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
)

// An op is one request of the driver's callers. The writer runs all that are waiting in one transaction, so that they
// share its cost.
type op struct {
	// run does the work. An error undoes the whole transaction, after which run may be called again; what is no error
	// of the database, such as that a lock is held, is an outcome for run to note elsewhere.
	run func(*tx) error

	// late undoes the work, once committed, if the caller has left. nil if there is no harm in it.
	late func(*tx) error

	// lasting asks that a power cut does not undo the work. Only tokens need it: leases end with the boot anyway.
	lasting bool

	state atomic.Int32
	ran   bool       // in the last transaction; for the writer only
	done  chan error // gets the outcome unless the caller has left
}

// The states of an op.
const (
	opWaiting int32 = iota
	opRunning
	opDone
	opLeft // the caller no longer waits for it
)

const (
	// withdrawal bounds the calls that undo, after a cancellation, what was asked for.
	withdrawal = time.Second

	// moment is for how long a caller whose context is done waits for what is being done for it:
	// to see its outcome, and then to see it undone. Both together are within
	// driver.CancelTimeout. A transaction takes less than 1 ms, and 10 ms on a slow disk.
	moment = driver.CancelTimeout / 4
)

// do has the writer run o. It returns soon after ctx is done, also if the disk or another process holds the writer up.
func (d *Driver) do(ctx context.Context, o *op) error {
	o.done = make(chan error, 1)
	select {
	case d.ops <- o:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-d.life.Done():
		return driver.ErrClosed
	}
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
		return o.leave(context.Cause(ctx))
	case <-d.life.Done():
		return o.leave(driver.ErrClosed)
	}
}

// leave stops waiting for the outcome, unless it comes within a moment.
func (o *op) leave(cause error) error {
	if o.state.CompareAndSwap(opWaiting, opLeft) {
		return cause
	}
	over := time.NewTimer(moment)
	defer over.Stop()
	select {
	case err := <-o.done:
		return err
	case <-over.C:
	}
	if o.state.CompareAndSwap(opRunning, opLeft) {
		return cause
	}
	return <-o.done
}

// write is the goroutine that writes to the database, until the driver is closed.
func (d *Driver) write(db conn) {
	defer close(d.written)
	defer db.close() //nolint:errcheck // what was committed is safe, the rest goes with the process's bytes
	w := &writer{d: d, db: db}
	for {
		select {
		case o := <-d.ops:
			w.serve(d.gather(o))
		case <-d.life.Done():
			return
		}
	}
}

// gather returns o and all ops that wait now.
func (d *Driver) gather(o *op) []*op {
	const most = 128 // other processes want their turn too
	batch := []*op{o}
	for len(batch) < most {
		select {
		case o := <-d.ops:
			batch = append(batch, o)
		default:
			return batch
		}
	}
	return batch
}

// A writer runs ops. It belongs to the goroutine of Driver.write.
type writer struct {
	d       *Driver
	db      conn
	lasting bool // what synchronous is set to

	process   int64 // the byte that is locked as long as the driver is open, 0 until the first lease
	next, end int64 // bytes that are ours to use
}

// serve runs the ops in one transaction, or each in its own if that fails.
func (w *writer) serve(batch []*op) {
	err := w.commit(batch)
	if err != nil && len(batch) > 1 {
		for _, o := range batch {
			w.serve([]*op{o})
		}
		return
	}
	for _, o := range batch {
		w.finish(o, err)
	}
}

// finish tells the caller of o, or undoes its work if the caller has left.
func (w *writer) finish(o *op, err error) {
	switch {
	case o.state.CompareAndSwap(opRunning, opDone), err != nil && o.state.CompareAndSwap(opWaiting, opDone):
		o.done <- err
	case err == nil && o.ran && o.late != nil:
		w.commit([]*op{{run: o.late}}) //nolint:errcheck // nobody is left to tell, and the TTL ends what remains
	}
}

// commit runs the ops in one transaction, which is undone wholly if one fails.
func (w *writer) commit(batch []*op) error {
	t := &tx{w: w, d: w.d, db: w.db}
	err := t.run(batch)
	hooks := t.after
	if err != nil {
		hooks = t.undo
		err = w.d.explain(err)
		if w.d.closed() {
			err = driver.ErrClosed // the rest follows from that
		}
	}
	for _, hook := range hooks {
		hook()
	}
	return err
}

// sync sets how the next transactions are written: lasting ones reach the disk before they are answered.
func (w *writer) sync(lasting bool) error {
	lasting = lasting && w.d.durable
	if lasting == w.lasting {
		return nil
	}
	sql := `PRAGMA synchronous = NORMAL`
	if lasting {
		sql = `PRAGMA synchronous = FULL`
	}
	if _, err := w.db.exec(sql); err != nil {
		return err
	}
	w.lasting = lasting
	return nil
}

// A tx is a transaction that writes. No other process writes at the same time.
type tx struct {
	w   *writer
	d   *Driver
	db  conn
	now int64 // the boot clock after the transaction began

	meta    meta
	changed bool // meta must be written

	after []func() // called after the commit
	undo  []func() // called if there was none
}

// meta is the row of that table.
type meta struct {
	counter, blocks, live int64
	boot, swept           string
}

func (t *tx) run(batch []*op) (err error) {
	lasting := false
	for _, o := range batch {
		lasting = lasting || o.lasting
	}
	if err := t.w.sync(lasting); err != nil {
		return err
	}
	if err := t.d.side.takeTurn(); err != nil {
		return err
	}
	defer t.d.side.endTurn()
	if _, err := t.db.exec(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	err = t.fill(batch)
	if err == nil {
		_, err = t.db.exec(`COMMIT`)
	}
	if err != nil {
		t.db.exec(`ROLLBACK`) //nolint:errcheck // SQLite may have rolled back by itself, and then this is an error
	}
	return err
}

// fill runs the ops between BEGIN and COMMIT.
func (t *tx) fill(batch []*op) error {
	if err := t.begin(); err != nil {
		return err
	}
	for _, o := range batch {
		o.ran = o.state.CompareAndSwap(opWaiting, opRunning) || o.state.Load() == opRunning
		if !o.ran {
			continue
		}
		if err := o.run(t); err != nil {
			return err
		}
	}
	if !t.changed {
		return nil
	}
	m := t.meta
	_, err := t.db.exec(`UPDATE meta SET counter = ?, blocks = ?, boot = ?, live = ?, swept = ?`,
		m.counter, m.blocks, m.boot, m.live, m.swept)
	return err
}

// begin reads the clock and meta, and makes sure that the rows and the sidecar are those of this boot.
func (t *tx) begin() error {
	if err := t.d.intact(); err != nil {
		return err
	}
	t.now = t.d.now()
	m, err := readMeta(t.db)
	if err != nil {
		return err
	}
	t.meta = m
	switch {
	case m.boot == t.d.boot && m.live == t.d.live:
		return nil
	case m.boot == t.d.boot:
		if err := t.checkAdoption(); err != nil {
			return err
		}
	// Containers may show boot ids of their own. Then the rows are not over, whatever the id says.
	case t.d.side.anyLocked(blockSize, 0):
		return fmt.Errorf("%w place: %s is in use by processes with another boot id, such as those of another container",
			driver.ErrInvalid, t.d.path)
	}
	t.meta.boot, t.meta.live, t.changed = t.d.boot, t.d.live, true
	return first(
		func() error { _, err := t.db.exec(`DELETE FROM leases`); return err },
		func() error { _, err := t.db.exec(`DELETE FROM waiters`); return err })
}

// checkAdoption reports that there are leases which rely on another sidecar, whose bytes we can't see.
func (t *tx) checkAdoption() error {
	var live int64
	count := func(r row) { live = r.int(0) }
	if err := t.db.query(`SELECT count(*) FROM leases WHERE deadline > ?`, count, t.now); err != nil {
		return err
	}
	if live > 0 {
		return fmt.Errorf("%s.live is not the file that %d leases rely on: it was replaced or deleted, or the database "+
			"was copied; wait until they end", t.d.path, live)
	}
	return nil
}

func readMeta(db conn) (m meta, err error) {
	found := false
	err = db.query(`SELECT counter, blocks, boot, live, swept FROM meta`, func(r row) {
		m = meta{counter: r.int(0), blocks: r.int(1), boot: r.text(2), live: r.int(3), swept: r.text(4)}
		found = true
	})
	if err == nil && !found {
		err = fmt.Errorf("%w file: the table meta is empty", driver.ErrInvalid)
	}
	return m, err
}

// ticket returns a waiter's number: greater than all tickets and tokens before.
func (t *tx) ticket() int64 {
	t.meta.counter++
	t.changed = true
	return t.meta.counter
}

// tokens returns the first of n fencing tokens: greater than all tickets and tokens before, and not behind the wall clock,
// which orders tokens should the database be lost.
func (t *tx) tokens(n int) (first int64) {
	first = int64(driver.NextToken(uint64(t.meta.counter), time.Now()))
	t.meta.counter = first + int64(n) - 1
	t.changed = true
	return first
}

// newByte returns a byte of the sidecar that was never used before.
func (t *tx) newByte() (int64, error) {
	w := t.w
	if w.next == w.end {
		if err := t.newBlock(); err != nil {
			return 0, err
		}
	}
	w.next++
	return w.next - 1, nil
}

// newBlock takes the next block of bytes. The first byte of the first one is the driver's own.
func (t *tx) newBlock() error {
	w := t.w
	process, next, end := w.process, w.next, w.end
	t.undo = append(t.undo, func() { w.process, w.next, w.end = process, next, end })
	t.meta.blocks++
	t.changed = true
	w.next = t.meta.blocks * blockSize
	w.end = w.next + blockSize
	if w.process != 0 {
		return nil
	}
	w.process = w.next
	w.next++
	return t.lock(w.process)
}

// lock locks a byte, unless the transaction fails.
func (t *tx) lock(at int64) error {
	if err := t.d.side.lock(at); err != nil {
		return err
	}
	t.undo = append(t.undo, func() { t.d.side.unlock(at) })
	return nil
}

// unlock unlocks a byte after the commit.
func (t *tx) unlock(at int64) { t.after = append(t.after, func() { t.d.side.unlock(at) }) }

// lockApart is lock with an open file of its own.
func (t *tx) lockApart(at int64) (*os.File, error) {
	f, err := t.d.side.lockApart(at)
	if err != nil {
		return nil, err
	}
	t.undo = append(t.undo, func() { f.Close() })
	return f, nil
}

// closed reports whether Close was called.
func (d *Driver) closed() bool { return d.life.Err() != nil }

// intact reports that one of our files was replaced or deleted. With another log, or another index
// of it, SQLite's locks do not keep us and other processes apart.
func (d *Driver) intact() error {
	for i, suffix := range suffixes {
		if err := sameFile(d.files[i], d.path+suffix); err != nil {
			return err
		}
	}
	return nil
}
