package redlock

import (
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
)

// A plainTake is what a round may take a lock with instead of a script, on each node: commands of
// Redis, which cost the node less. Other clients' commands may be served between them. Their order
// makes that safe:
//
//   - SET NX first: it takes the key if that is free. The value has the token that the round
//     expects.
//   - HINCRBY then: the counter is raised after the key was taken.
//   - MGET then: the key is still the round's. It has been since SET, because no other round has
//     this nonce. So it was when the counter was raised.
//   - HMGET and INFO last: the node is the one that we mean, and is admitted, in the run of the
//     server that answers. So nothing of what the commands before have found was forgotten in
//     between.
//
// All plain takes of a batch share the last three. If the counter is not the expected token, or
// anything else is not as it should be, the script takes the lock. docs/redlock-proof.md has the
// argument in full.
type plainTake struct {
	token  uint64 // the expected one
	number string // the same
	value  string // of the lock's key
	answer string // that of the script to such a grant
}

// plainTake returns a plain take for a round, or nil if the round must use the script: if another
// request may have the same owner and take the lease over, if it wants several tokens, or if other
// clients used locks of the stripe lately. The token is the last one that the driver knows, plus 1.
func (d *Driver) plainTake(req *driver.Request, l *lock, nonce, rest string) *plainTake {
	last := d.lastTokens[l.stripe].Load()
	if !req.UniqueOwner || req.Detached || tokenCount(req) > 1 || last == 0 || last >= maxToken {
		return nil
	}
	if left := &d.scripted[l.stripe]; left.Load() > 0 {
		left.Add(-1)
		return nil
	}
	number := strconv.FormatUint(last+1, 10)
	since := strconv.FormatInt(time.Now().UnixMicro(), 10)
	value := nonce + number + ` {"since":` + since + `,"plain":1,` + rest
	return &plainTake{token: last + 1, number: number, value: value, answer: "g " + number}
}

// metOthers reports whether others have raised the counters since the token that a plain round,
// which has won, was based on.
func (r *round) metOthers() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.plain != nil && r.plain.token != r.target
}

// A pipeline is a batch of which some commands need no holdScript. It keeps its memory.
type pipeline struct {
	free, full, plain []*command
	freeCall, call    scriptCall
	commands          []rueidis.Completed
	keys              []string
}

// runPipeline answers commands of a batch that can be served without holdScript, and those that are
// sent with them. Those that it leaves without an answer must be sent to the script. An error means
// that the connection is lost.
func (n *node) runPipeline(client rueidis.Client, batch []*command) error {
	p := &n.pipeline
	p.free, p.full, p.plain, p.commands = p.free[:0], p.full[:0], p.plain[:0], p.commands[:0]
	for _, cmd := range batch {
		switch {
		case cmd.quick:
			p.free = append(p.free, cmd)
		case cmd.plain != nil && !n.plainDenied:
			p.plain = append(p.plain, cmd)
		default:
			p.full = append(p.full, cmd)
		}
	}
	if len(p.free)+len(p.plain) == 0 {
		return nil
	}
	p.build(n, client.B())
	results := client.DoMulti(n.callCtx, p.commands...)
	for _, r := range results {
		if err := r.Error(); err != nil && !isReply(err) {
			return err
		}
	}
	if len(p.free) > 0 {
		answerAll(p.free, n.repeatUnknown(client, &p.freeCall, results[0]))
		results = results[1:]
	}
	if len(p.full) > 0 {
		answerAll(p.full, n.repeatUnknown(client, &p.call, results[0]))
		results = results[1:]
	}
	if len(p.plain) > 0 {
		n.plainDenied = p.answerPlain(results, n.cluster, n.address)
	}
	return nil
}

// build makes the commands: one call of each script, and the plain takes.
func (p *pipeline) build(n *node, b rueidis.Builder) {
	if len(p.free) > 0 {
		p.freeCall.writeFrees(p.free)
		p.commands = append(p.commands, p.freeCall.evalsha(b))
	}
	if len(p.full) > 0 {
		p.call.write(n.cluster, n.address, p.full)
		p.commands = append(p.commands, p.call.evalsha(b))
	}
	if len(p.plain) == 0 {
		return
	}
	p.keys = p.keys[:0]
	for _, cmd := range p.plain {
		p.keys = append(p.keys, cmd.lock.key)
		p.commands = append(p.commands,
			b.Arbitrary("SET").Keys(cmd.lock.key).Args(cmd.plain.value, "PX", cmd.args[1], "NX").Build(),
			b.Hincrby().Key(metaKey).Field(cmd.lock.counterField).Increment(1).Build())
	}
	p.commands = append(p.commands,
		b.Mget().Key(p.keys...).Build(), b.Hmget().Key(metaKey).Field("admitted", "cluster", "self").Build(), b.Info().Section("server").Build())
}

// repeatUnknown makes a call again, with the text of the script, if the server does not know it.
func (n *node) repeatUnknown(client rueidis.Client, c *scriptCall, r rueidis.RedisResult) rueidis.RedisResult {
	if e, ok := rueidis.IsRedisErr(r.Error()); ok && e.IsNoScript() {
		b := client.B().Eval().Script(c.script.Text).Numkeys(int64(len(c.keys)))
		return client.Do(n.callCtx, b.Key(c.keys...).Arg(c.args...).Build())
	}
	return r
}

// answerAll sets the answers of commands that were sent in one call of a script.
func answerAll(commands []*command, r rueidis.RedisResult) {
	answers, err := r.AsStrSlice()
	if err != nil || len(answers) != len(commands) {
		return // holdScript will say why
	}
	for i, cmd := range commands {
		if answers[i] != notMine {
			cmd.answer = answers[i]
		}
	}
}

// answerPlain sets the answers of the plain takes that were granted. The result denied reports that
// our user lacks a permission that the script can do without.
func (p *pipeline) answerPlain(results []rueidis.RedisResult, cluster, self string) (denied bool) {
	rest := results[2*len(p.plain):]
	values, _ := rest[0].AsStrSlice()
	node, _ := rest[1].AsStrSlice()
	info, _ := rest[2].ToString()
	vouched := len(node) == 3 && node[0] != "" && strings.Contains(info, "\nrun_id:"+node[0]+"\r") &&
		node[1] == cluster && node[2] == self && len(values) == len(p.plain)
	for i, cmd := range p.plain {
		set, count := results[2*i], results[2*i+1]
		if isForbidden(count.Error()) {
			return true
		}
		if !vouched {
			continue
		}
		_, setErr := set.ToString()
		counter, err := count.AsUint64()
		isMine := setErr == nil && strings.HasPrefix(values[i], cmd.args[0])
		if isMine && err == nil && counter == cmd.plain.token {
			cmd.answer = cmd.plain.answer
		}
	}
	return false
}
