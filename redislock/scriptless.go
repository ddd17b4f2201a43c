package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
)

// A scriptlessConn is the Conn of a server that refuses scripts. It answers their calls itself:
// what a script does in one step, it does in a transaction. It watches the keys, reads them, and
// writes by MULTI and EXEC, which do nothing if another client has changed a watched key meanwhile.
// Then it begins again. The files in script say what is right; the functions here have their names.
type scriptlessConn struct {
	Conn
	places chan struct{} // one for each connection in use
}

// maxTransactions bounds the connections for transactions.
const maxTransactions = 8

func newScriptlessConn(c Conn) *scriptlessConn {
	return &scriptlessConn{Conn: c, places: make(chan struct{}, maxTransactions)}
}

// checkScriptless rejects what can't be had without scripts.
func (c *config) checkScriptless(conn Conn, refusal string) error {
	what := ""
	switch {
	case conn.IsCluster():
		what = "a Cluster"
	case c.durable:
		what = "DurableAOF"
	case !c.grace:
		what = "FailoverGrace(false)"
	case c.yieldEvery > 0:
		what = "YieldToForeign"
	case c.floor < minTTL:
		what = fmt.Sprintf("a GraceFloor below %v, which bounds the TTL,", minTTL)
	default:
		return nil
	}
	return driver.Invalidf("server: it refuses scripts (%s), and %s needs them; allow EVAL and EVALSHA", refusal, what)
}

// Eval implements [Conn]. If ctx ends, it waits a moment for the end of what is under way, so that
// the withdrawal of a request can't overtake the request.
func (c *scriptlessConn) Eval(ctx context.Context, calls ...Call) []Reply {
	if !slices.ContainsFunc(calls, func(call Call) bool { return call.Script != nil }) {
		return c.Conn.Eval(ctx, calls...)
	}
	own := cloneCalls(calls)
	done := make(chan []Reply, 1)
	go func() {
		replies := make([]Reply, len(own))
		for i, call := range own {
			replies[i] = c.serveCall(ctx, call)
		}
		done <- replies
	}()
	select {
	case replies := <-done:
		return replies
	case <-ctx.Done():
	}
	timer := time.NewTimer(driver.CancelTimeout / 4)
	defer timer.Stop()
	select {
	case replies := <-done:
		return replies
	case <-timer.C:
		return failed(len(calls), context.Cause(ctx))
	}
}

func (c *scriptlessConn) serveCall(ctx context.Context, call Call) Reply {
	switch call.Script {
	case nil:
		return c.Conn.Eval(ctx, call)[0]
	case fullScript:
		return c.serveFull(ctx, call)
	case freeScript, enqueueScript:
		return Reply{Lines: []string{"?"}}
	case fastPathScript:
		return Reply{Lines: slices.Repeat([]string{"?"}, int(parseInt(call.Args[4])+parseInt(call.Args[5])))}
	case extendScript, renewScript:
		return c.serveOne(ctx, func(x *transaction) (string, error) { return x.renew(renewalsIn(call)) })
	case forgetScript:
		return c.serveOne(ctx, func(x *transaction) (string, error) { return "o", x.forget(call.Keys[0], call.Keys[1]) })
	case longestScript:
		return c.serveOne(ctx, func(x *transaction) (string, error) {
			longest, err := x.longest(call.Keys[1])
			return strconv.FormatInt(longest, 10), err
		})
	case snapshotScript:
		return c.snapshots(ctx, call.Keys)
	}
	return Reply{Err: &ReplyError{"this can't be done without scripts, which the server refuses"}}
}

// serveFull answers a call of fullScript. Its requests are for different locks, as a rule.
func (c *scriptlessConn) serveFull(ctx context.Context, call Call) Reply {
	floor, maxTTL := parseInt(call.Args[0]), parseInt(call.Args[1])
	answers := make([]Reply, (len(call.Keys)-2)/4)
	var all sync.WaitGroup
	for i, arg := 0, 6; i < len(answers); i++ {
		keys, n := lockKeys(call.Keys[2+4*i:]), int(parseInt(call.Args[arg+1]))
		code, args := call.Args[arg], call.Args[arg+2:arg+2+n]
		arg += 2 + n
		all.Go(func() {
			answers[i] = c.serveOne(ctx, func(x *transaction) (string, error) {
				x.metaKey, x.longLeasesKey, x.floor, x.maxTTL = call.Keys[0], call.Keys[1], floor, maxTTL
				return x.serve(code, keys, args)
			})
		})
	}
	all.Wait()
	lines := make([]string, len(answers))
	for i, r := range answers {
		var refusal *ReplyError
		switch {
		case r.Err == nil:
			lines[i] = r.Lines[0]
		case errors.As(r.Err, &refusal):
			lines[i] = "x " + refusal.Text
		default:
			return r
		}
	}
	return Reply{Lines: lines}
}

// serveOne runs a transaction, again and again while others change what it watches, and returns its
// answer.
func (c *scriptlessConn) serveOne(ctx context.Context, serve func(x *transaction) (string, error)) Reply {
	select {
	case c.places <- struct{}{}:
		defer func() { <-c.places }()
	case <-ctx.Done():
		return Reply{Err: context.Cause(ctx)}
	}
	var answer string
	err := c.Dedicate(ctx, func(send Pipeline) (err error) {
		x := &transaction{ctx: ctx, send: send}
		for try := 0; ; try++ {
			if answer, err = serve(x); err != errConflict || ctx.Err() != nil { //nolint:errorlint // it is ours
				break
			}
			time.Sleep(rand.N(time.Duration(1+min(try, 10)) * time.Millisecond / 2)) // so that another one gets through
		}
		if x.watches { // the connection may go back to a pool; after an error it may be lost
			_, failed := x.do(Call{Command: "UNWATCH"})
			err = cmp.Or(err, failed)
		}
		return err
	})
	if err != nil {
		return Reply{Err: err}
	}
	return Reply{Lines: []string{answer}}
}

// errConflict says that another client has changed what a transaction watches.
var errConflict = errors.New("other clients keep changing the keys of the lock")

// A transaction serves one request on a connection of its own.
type transaction struct {
	ctx  context.Context //nolint:containedctx // of one request
	send Pipeline

	watches bool // there are watched keys

	metaKey, longLeasesKey string
	floor, maxTTL          int64 // in ms
}

// lockKeys are the keys of one lock, as keysOf returns them.
type lockKeys [4]string

func (k lockKeys) lock() string     { return k[0] }
func (k lockKeys) record() string   { return k[1] }
func (k lockKeys) queue() string    { return k[2] }
func (k lockKeys) requests() string { return k[3] }

// on returns the call of a command with one key.
func on(key, command string, args ...string) Call {
	return Call{Command: command, Keys: []string{key}, Args: args}
}

// do sends commands in one pipeline, and returns their replies. A command on a key of another type
// has no reply. Any other error is that of do.
func (x *transaction) do(calls ...Call) ([]Reply, error) {
	if x.ctx.Err() != nil {
		return nil, context.Cause(x.ctx)
	}
	x.watches = x.watches || calls[0].Command == "WATCH"
	replies := x.send(calls...)
	for i, r := range replies {
		var refusal *ReplyError
		if errors.As(r.Err, &refusal) && isWrongType(refusal.Text) {
			replies[i] = Reply{}
		} else if r.Err != nil {
			return nil, r.Err
		}
	}
	return replies, nil
}

// exec sends commands that are executed together, unless a watched key has changed: then it returns
// errConflict. It returns their replies.
func (x *transaction) exec(calls ...Call) ([]string, error) {
	replies, err := x.do(slices.Concat([]Call{{Command: "MULTI"}}, calls, []Call{{Command: "EXEC"}})...)
	if err != nil {
		return nil, err
	}
	x.watches = false
	results := replies[len(replies)-1].Lines
	if len(results) == 0 {
		return nil, errConflict
	}
	return results, nil
}

// text returns the first line of a reply, or "".
func text(r Reply) string {
	if len(r.Lines) == 0 {
		return ""
	}
	return r.Lines[0]
}

// parseInt returns the number that a text is, or 0.
func parseInt(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// parseTime returns the reply to TIME in microseconds.
func parseTime(r Reply) int64 {
	if len(r.Lines) != 2 {
		return 0
	}
	return parseInt(r.Lines[0])*1e6 + parseInt(r.Lines[1])
}

// A serverMemory is what the server remembers of itself, as script/memory.lua says, and what INFO
// says of it.
type serverMemory struct {
	token          int64
	runID          string
	start, unknown int64 // in microseconds, and in ms
	info           rediskit.Info
	now            int64
}

// memoryCalls read a serverMemory.
func memoryCalls(metaKey string) []Call {
	return []Call{on(metaKey, "HMGET", "t", "r", "c", "x"), {Command: "INFO", Args: []string{"server"}}, {Command: "TIME"}}
}

func parseMemory(replies []Reply) (m serverMemory, err error) {
	meta := replies[0].Lines
	m.info, m.now = rediskit.ParseInfo(text(replies[1])), parseTime(replies[2])
	if len(meta) != 4 || m.info["run_id"] == "" || m.now == 0 {
		return m, badAnswerf("HMGET, INFO and TIME answered %q, %d characters and %q", meta, len(text(replies[1])), replies[2].Lines)
	}
	m.token, m.runID, m.start, m.unknown = parseInt(meta[0]), meta[1], parseInt(meta[2]), parseInt(meta[3])
	return m, nil
}

// isVouched reports whether the server is the one that wrote last, and whether its last token
// belongs to its memory. One that is older is that of a replica, which may lack tokens that its
// master has granted. The scripts never grant less than the clock; HINCRBY does.
func (m serverMemory) isVouched() bool {
	return m.runID == m.info["run_id"] && m.start <= m.now && m.token > 0 && m.token >= m.start
}

// identify does what script/identity.lua does, and sets the last token to the clock. It returns
// errConflict, so that the request is served again.
func (x *transaction) identify() error {
	if _, err := x.do(Call{Command: "UNWATCH"}); err != nil {
		return err
	}
	replies, err := x.do(append([]Call{on(x.metaKey, "WATCH")}, memoryCalls(x.metaKey)...)...)
	if err != nil {
		return err
	}
	m, err := parseMemory(replies[1:])
	if err != nil {
		return err
	}
	id := m.info["run_id"]
	switch {
	case m.runID == "": // see identity.lua for the second
		m.start, m.unknown = m.now-max(parseInt(m.info["uptime_in_seconds"])-1, 0)*1e6, 0
	case m.runID != id:
		longest, err := x.longest(x.longLeasesKey)
		if err != nil {
			return err
		}
		m.start, m.unknown = m.now, max(0, ceilMillis(m.start-m.now)+m.unknown, longest)
	}
	_, err = x.exec(on(x.metaKey, "HSET", "r", id, "t", decimal(max(m.token, m.now)), "c", decimal(min(m.start, m.now)), "x", decimal(m.unknown)))
	if err != nil {
		return err
	}
	return errConflict
}

// grace is that of script/grace.lua.
func (x *transaction) grace(m serverMemory, ttl int64) (ms int64) {
	return ceilMillis(m.start-m.now) + min(max(m.unknown, x.floor, min(ttl, 60000)), x.maxTTL)
}

// longest is script/longest.lua.
func (x *transaction) longest(longLeasesKey string) (ms int64, err error) {
	replies, err := x.do(on(longLeasesKey, "ZRANGEBYSCORE", "-inf", "+inf", "WITHSCORES"), Call{Command: "TIME"})
	if err != nil {
		return 0, err
	}
	now, lines := parseTime(replies[1]), replies[0].Lines
	for i := 0; i+1 < len(lines); i += 2 {
		if end, err := strconv.ParseFloat(lines[i+1], 64); err == nil && int64(end) >= now {
			var ttl int64
			_, _ = fmt.Sscanf(lines[i], "%d ", &ttl)
			ms = max(ms, ttl)
		}
	}
	return ms, nil
}

// forget is script/forget.lua.
func (x *transaction) forget(metaKey, longLeasesKey string) error {
	replies, err := x.do(append([]Call{on(metaKey, "WATCH")}, memoryCalls(metaKey)...)...)
	if err != nil {
		return err
	}
	m, err := parseMemory(replies[1:])
	if err != nil {
		return err
	}
	_, err = x.exec(on(metaKey, "HSET", "r", m.info["run_id"], "t", decimal(max(m.token, m.now)), "c", "0", "x", "0"), on(longLeasesKey, "DEL"))
	return err
}

// ceilMillis returns microseconds as milliseconds, rounded up.
func ceilMillis(us int64) int64 {
	if us > 0 {
		return (us + 999) / 1000
	}
	return us / 1000
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
