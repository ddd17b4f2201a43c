package sqlitelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
)

// An op is one request to the writer. The writer runs all ops that are waiting in one
// transaction, so that they share its cost.
type op struct {
	// run does the work. An error rolls back the whole transaction, after which run may be called
	// again. If the result is not a database error, such as driver.ErrHeld, run stores it
	// elsewhere and returns nil.
	run func(*tx) error

	// revert undoes the committed work if the caller has left. It is nil if the
	// work does no harm.
	revert func(*writer)

	// durable means that a power cut must not undo the work. Tokens need it, and detached leases
	// and those that MinHold keeps. The other leases end with the boot.
	durable bool

	state atomic.Int32
	ran   bool       // in the last transaction; for the writer only
	done  chan error // gets the outcome unless the caller has left
}

// The states of an op.
const (
	opWaiting int32 = iota
	opRunning
	opDone
	opAbandoned // the caller no longer waits for it
)

const (
	// cleanupTimeout bounds the removal of a cancelled attempt's lease and place in the queue.
	cleanupTimeout = time.Second

	// outcomeWait is how long a caller whose context is done waits for the outcome of a running op,
	// and removalWait how long it then waits for the removal of what that left behind. Both together
	// are within driver.CancelTimeout. A transaction takes less than 1 ms, and 10 ms on a slow disk.
	outcomeWait = driver.CancelTimeout / 4
	removalWait = driver.CancelTimeout / 2
)

// do has the writer run o, unless the driver is closed. It returns in time, see inTime.
func (d *Driver) do(ctx context.Context, o *op) error {
	ctx, end := d.during(ctx)
	defer end()
	return d.inTime(ctx, answerTimeout, func(ctx context.Context) error { return d.run(ctx, o) })
}

// run has the writer run o. It returns soon after ctx is done, also if the disk or another process
// blocks the writer.
func (d *Driver) run(ctx context.Context, o *op) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	o.done = make(chan error, 1)
	select {
	case d.ops <- o:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
		return o.abandon(context.Cause(ctx))
	}
}

// during returns a context that is done with ctx or with the driver, and a function that frees it.
func (d *Driver) during(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	detach := context.AfterFunc(d.life, func() { cancel(driver.ErrClosed) })
	if d.closed() {
		cancel(driver.ErrClosed) // at once
	}
	return ctx, func() { detach(); cancel(nil) }
}

const (
	// answerTimeout bounds the wait for one answer, except in the queue. It ends before the core gives
	// up, because the core's error can't say why there was no answer.
	answerTimeout = driver.AnswerTimeout * 9 / 10

	// slowAnswer is the time after which an error mentions how long the answer took. Most
	// answers take less than 1 ms, and those of a large batch some 10 ms.
	slowAnswer = 100 * time.Millisecond
)

// errNoAnswer is the cause when the wait for an answer has taken too long.
var errNoAnswer = errors.New("there was no answer")

// inTime calls request, which must return soon after its context is done: with ctx, or after
// timeout. If there is no answer in time, for example because another process has the writer lock
// and is stopped, the error is an ErrUnavailable.
func (d *Driver) inTime(ctx context.Context, timeout time.Duration, request func(context.Context) error) error {
	began := time.Now()
	bounded, cancel := context.WithTimeoutCause(ctx, timeout, errNoAnswer)
	defer cancel()
	err := request(bounded)
	took := time.Since(began)
	switch {
	case err == nil, bounded.Err() == nil, errors.Is(err, driver.ErrClosed):
		return err
	case errors.Is(err, errNoAnswer):
		return d.noAnswer(took)
	case errors.Is(err, context.Cause(ctx)) && took > slowAnswer:
		return fmt.Errorf("%w: no answer within %v: %w", driver.ErrUnavailable, took.Round(slowAnswer), err)
	}
	return err
}

// noAnswer returns the error of a request that has had no answer, and says why.
func (d *Driver) noAnswer(took time.Duration) error {
	return fmt.Errorf("%w: no answer within %v: %s", driver.ErrUnavailable, took.Round(slowAnswer), d.describeWriter())
}

// describeWriter describes what keeps the writer from writing.
func (d *Driver) describeWriter() string {
	for _, h := range lockedBy(d.side.lockingProcesses(), writerByte) {
		if h.PID != os.Getpid() {
			return fmt.Sprintf("pid %d (%s) writes to %s, and makes no progress; is it stopped?", h.PID, h.Label, d.path)
		}
	}
	return fmt.Sprintf("another process, or the disk, delays the process that writes to %s", d.path)
}

// abandon stops waiting for the outcome unless it arrives within outcomeWait.
func (o *op) abandon(cause error) error {
	if o.state.CompareAndSwap(opWaiting, opAbandoned) {
		return cause
	}
	over := time.NewTimer(outcomeWait)
	defer over.Stop()
	select {
	case err := <-o.done:
		return err
	case <-over.C:
	}
	if o.state.CompareAndSwap(opRunning, opAbandoned) {
		return cause
	}
	return <-o.done
}

// runWriter is the goroutine that writes to the database until the driver is closed, and nothing of
// an attempt must be withdrawn any more.
func (d *Driver) runWriter(db *conn) {
	defer close(d.writerDone)
	defer db.close() //nolint:errcheck // committed data is safe, and leases end with the process's locks on bytes
	w := &writer{d: d, db: db, durable: true}
	for {
		select {
		case o := <-d.ops:
			w.serve(d.gather(o))
		case <-d.lastOp:
			return
		}
	}
}

// gather returns o and all ops that wait now, up to 128 in all.
func (d *Driver) gather(o *op) []*op {
	const most = 128 // other processes need the writer lock too
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

// A writer runs ops. It belongs to the goroutine of Driver.runWriter.
type writer struct {
	d       *Driver
	db      *conn
	durable bool // whether synchronous is FULL

	// process is the byte that is locked as long as the driver is open, 0 until the first lease.
	process           int64
	nextByte, endByte int64 // the bytes that this driver may still take

	granted []leaseKey // leases of this driver, for checkOldest; some have been released
}

// serve runs the ops in one transaction, or each in a transaction of its own if that fails.
func (w *writer) serve(batch []*op) {
	err := w.commit(batch)
	if isEmptied(err) {
		err = w.commit(append([]*op{{run: (*tx).recreate}}, batch...))
	}
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

// finish sends the outcome to the caller of o, or undoes the work if the caller has left.
func (w *writer) finish(o *op, err error) {
	switch {
	case o.state.CompareAndSwap(opRunning, opDone), err != nil && o.state.CompareAndSwap(opWaiting, opDone):
		o.done <- err
	case err == nil && o.ran && o.revert != nil:
		o.revert(w)
	}
}

// commit runs the ops in one transaction, which is rolled back if one of them fails.
func (w *writer) commit(batch []*op) error {
	t := &tx{w: w, d: w.d, db: w.db}
	err := t.run(batch)
	hooks := t.after
	if err != nil {
		hooks = t.undo
		err = w.d.explain(err)
		if w.d.closed() {
			err = driver.ErrClosed // other errors are consequences
		}
	}
	for _, hook := range hooks {
		hook()
	}
	return err
}

// setSync sets how the next transactions are written: durable ones reach the disk
// before their ops return.
func (w *writer) setSync(durable bool) error {
	if durable == w.durable {
		return nil
	}
	sql := syncNormal
	if durable {
		sql = syncFull
	}
	if err := w.db.exec(sql); err != nil {
		return err
	}
	w.durable = durable
	return nil
}

// A tx is a write transaction. No other process writes at the same time.
type tx struct {
	w     *writer
	d     *Driver
	db    *conn
	start driver.Instant // just before now was read
	now   int64          // the boot clock when the transaction began
	wall  int64          // the wall clock then

	meta    meta
	changed bool // meta must be written

	after []func() // called after the commit
	undo  []func() // called if the transaction failed
}

// meta is the row of the table meta.
type meta struct {
	counter, blocks, live int64
	boot, swept           string
}

func (t *tx) run(batch []*op) (err error) {
	durable := false
	for _, o := range batch {
		durable = durable || o.durable
	}
	if err := t.w.setSync(durable); err != nil {
		return err
	}
	if err := t.d.side.lockWriter(); err != nil {
		return err
	}
	defer t.d.side.unlockWriter()
	if err := t.db.exec(beginWrite); err != nil {
		return err
	}
	err = t.fill(batch)
	if err == nil {
		err = t.db.exec(commit)
	}
	if err != nil {
		t.db.exec(rollback) //nolint:errcheck // SQLite may have rolled back by itself, and then this is an error
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
	return t.db.exec(updateMeta, m.counter, m.blocks, m.boot, m.live, m.swept)
}

// begin reads the clocks and meta, and takes the file over if its rows are of an earlier boot or
// rely on another sidecar.
func (t *tx) begin() error {
	if err := t.d.checkIntact(); err != nil {
		return err
	}
	t.start = driver.Now()
	t.now, t.wall = t.d.now(), t.d.wall()
	m, err := readMeta(t.db)
	if isEmptied(err) {
		if err = t.recreate(); err == nil {
			m, err = readMeta(t.db)
		}
	}
	if err != nil {
		return err
	}
	t.meta = m
	if t.d.matches(m) {
		return nil
	}
	return t.takeOver()
}

// matches reports whether the rows are of this boot and rely on our sidecar.
func (d *Driver) matches(m meta) bool { return m.boot == d.boot && m.live == d.live }

// takeOver deletes the rows of processes, which are gone, and keeps the leases that do not depend
// on a process. It fails if processes may still be there.
func (t *tx) takeOver() error {
	restarted := t.meta.boot != t.d.boot
	switch {
	case t.meta.boot == "" && t.d.side.inUse():
		// Somebody has deleted meta. The rows are those of processes that are still there.
		t.meta.boot, t.meta.live, t.changed = t.d.boot, t.d.live, true
		return nil
	case !restarted:
		if err := t.checkSidecar(); err != nil {
			return err
		}
	// Containers may show boot ids of their own. Then the rows are still valid,
	// whatever the id says.
	case t.d.side.inUse():
		return driver.Invalidf("place: %s is in use by processes with another boot id, such as those of another container",
			t.d.path)
	default:
		// If the wall clock went back, a lease has at most as much left as when it was last renewed.
		if err := t.db.exec(moveDeadlines, t.now, t.wall); err != nil {
			return err
		}
	}
	t.meta.boot, t.meta.live, t.changed = t.d.boot, t.d.live, true
	return firstError(
		func() error { return t.db.exec(deleteProcessLeases) },
		func() error { return t.db.exec(deleteWaiters) })
}

// checkSidecar returns an error if there are leases of processes that rely on another sidecar,
// whose bytes this driver can't see.
func (t *tx) checkSidecar() error {
	var live int64
	count := func(r row) { live = r.int(0) }
	if err := t.db.query(countProcessLeases, count, t.now); err != nil {
		return err
	}
	if live > 0 {
		return fmt.Errorf("%s.live is not the file that %d leases rely on: it was replaced or deleted, or the database "+
			"was copied; wait until they end", t.d.path, live)
	}
	return nil
}

func readMeta(db *conn) (m meta, err error) {
	found := false
	err = db.query(selectMeta, func(r row) {
		m = meta{counter: r.int(0), blocks: r.int(1), boot: r.text(2), live: r.int(3), swept: r.text(4)}
		found = true
	})
	if err == nil && !found {
		err = errEmptied
	}
	return m, err
}

// errEmptied means that somebody has deleted the row of meta.
var errEmptied = errors.New("the table meta is empty")

// isEmptied reports whether somebody has emptied or dropped tables. The locks that they had are
// lost, and nothing else is wrong.
func isEmptied(err error) bool {
	return errors.Is(err, errEmptied) || resultCode(err) == codeError && strings.Contains(err.Error(), "no such table")
}

// recreate makes what is missing in the database.
func (t *tx) recreate() error {
	for _, sql := range append(createTables[:], replaceMeta) {
		if err := t.db.exec(sql); err != nil {
			return err
		}
	}
	return nil
}

// ticket returns a waiter's number. It is greater than all earlier tickets and tokens.
func (t *tx) ticket() int64 {
	t.meta.counter++
	t.changed = true
	return t.meta.counter
}

// tokens returns the first of n fencing tokens. They are greater than all earlier tickets and
// tokens, and not behind the wall clock, which keeps tokens ordered if the database is lost.
func (t *tx) tokens(n int) (first int64) {
	first = int64(driver.NextToken(uint64(t.meta.counter), time.Now()))
	t.meta.counter = first + int64(n) - 1
	t.changed = true
	return first
}

// newByte returns a byte of the sidecar that was never used before.
func (t *tx) newByte() (int64, error) {
	w := t.w
	if w.nextByte == w.endByte {
		if err := t.newBlock(); err != nil {
			return 0, err
		}
	}
	w.nextByte++
	return w.nextByte - 1, nil
}

// lockProcess locks the byte that stands for the process.
func (t *tx) lockProcess() error {
	if t.w.process != 0 {
		return nil
	}
	return t.newBlock()
}

// newBlock takes the next block of bytes. The first byte of a driver's first block
// stands for its process.
func (t *tx) newBlock() error {
	w := t.w
	process, next, end := w.process, w.nextByte, w.endByte
	t.undo = append(t.undo, func() { w.process, w.nextByte, w.endByte = process, next, end })
	t.meta.blocks++
	t.changed = true
	w.nextByte = t.meta.blocks * blockSize
	w.endByte = w.nextByte + blockSize
	if w.process != 0 {
		return nil
	}
	w.process = w.nextByte
	w.nextByte++
	return t.lock(w.process)
}

// lock locks a byte, and unlocks it again if the transaction fails.
func (t *tx) lock(at int64) error {
	if err := t.d.side.lock(at); err != nil {
		return err
	}
	t.undo = append(t.undo, func() { t.d.side.unlock(at) })
	return nil
}

// unlock unlocks a byte after the commit.
func (t *tx) unlock(at int64) { t.after = append(t.after, func() { t.d.side.unlock(at) }) }

// lockNewFile is lock through a new open file, which a child process may inherit.
func (t *tx) lockNewFile(at int64) (*os.File, error) {
	f, err := t.d.side.lockNewFile(at)
	if err == nil {
		t.undo = append(t.undo, func() { t.d.side.unlock(at) })
	}
	return f, err
}

// wallAt returns the wall clock at a time of the boot clock.
func (t *tx) wallAt(at int64) int64 { return t.wall + at - t.now }

// closed reports whether Close was called.
func (d *Driver) closed() bool { return d.life.Err() != nil }

// checkIntact returns an error if one of the driver's files was replaced or deleted. With
// another log, or another index of the log, SQLite's locks do not exclude other processes.
func (d *Driver) checkIntact() error {
	for i, suffix := range suffixes {
		if err := checkSameFile(d.files[i], d.path+suffix); err != nil {
			return err
		}
	}
	return nil
}
