package redislock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
)

// plainTimeout is how long after a serverCheck a plain grant must have been answered: a server that
// answers is then still the one that was checked. It is too short for a failover and a way back.
const plainTimeout = 50 * time.Millisecond

// plainCalls has the memory for the calls of takePlain.
type plainCalls struct {
	texts [7]string
	calls [3]Call
}

// sendAlone sends a command that is alone in its batch, if there is a cheaper way than by the
// scripts for batches. It reports whether there was.
func (s *sender) sendAlone(ctx context.Context, q *slotQueue, b *batch) bool {
	cmd, sent := b.commands[0], driver.Now()
	switch {
	case s.mustSave(cmd):
		return false
	case cmd.small && cmd.code == "A":
		return s.evalSmall(ctx, q, cmd, Call{
			Script: enqueueScript, Keys: cmd.keys[:], Args: []string{s.floor, s.maxTTL, cmd.args[0], cmd.args[5]},
		}, sent)
	case cmd.small:
		return s.evalSmall(ctx, q, cmd, s.freeCall(q, b, sent), sent)
	case cmd.code == "A" && !cmd.queuedAt.IsZero():
		if r, ok := s.readGrant(ctx, cmd); ok {
			deliver([]*command{cmd}, r, nil, cmd.queuedAt)
			return true
		}
	case cmd.code == "a" && cmd.plain && !s.plainDenied.Load():
		s.mu.Lock()
		check := q.lastCheck
		s.mu.Unlock()
		if check.token > 0 && check.covers(cmd.ttl, sent) {
			r := s.takePlain(ctx, q, cmd, check)
			s.lastCallFailed.Store(r.Err != nil)
			deliver([]*command{cmd}, r, nil, sent)
			return true
		}
	}
	return false
}

// evalSmall runs a small script for a command. It reports whether the command has its answer; a
// release has also if only another script can serve it.
func (s *sender) evalSmall(ctx context.Context, q *slotQueue, cmd *command, call Call, sent driver.Instant) bool {
	r := s.conn.Eval(ctx, call)[0]
	s.lastCallFailed.Store(r.Err != nil)
	if cmd.code == "A" && len(r.Lines) == 1 && r.Lines[0] == "?" {
		return false
	}
	s.saveServerCheck(q, &r, 1, sent)
	deliver([]*command{cmd}, r, nil, sent)
	return true
}

// freeCall makes the call of freeScript for a release.
func (s *sender) freeCall(q *slotQueue, b *batch, now driver.Instant) Call {
	cmd := b.commands[0]
	b.keys, b.args = b.keys[:0], b.args[:0]
	s.appendServer(q, b, now)
	b.keys = append(b.keys, cmd.keys[:]...)
	b.args = append(b.args, cmd.args[0], cmd.args[1], cmd.args[3])
	return Call{Script: freeScript, Keys: b.keys, Args: b.args}
}

// readGrant reads whether a release has handed the lock over to the request, which was in the queue
// at cmd.queuedAt. The lease is not extended, so it counts from then.
func (s *sender) readGrant(ctx context.Context, cmd *command) (r Reply, ok bool) {
	held := s.conn.Eval(ctx, Call{Command: "MGET", Keys: cmd.keys[:2]})[0].Lines
	if len(held) != 2 || held[0] != cmd.args[0] {
		return r, false
	}
	var hold request
	if err := json.Unmarshal([]byte(held[1]), &hold); err != nil || hold.Owner != cmd.args[0] || hold.ID != cmd.id {
		return r, false
	}
	wanted := 1 // as far as is known, if an earlier version has granted it
	if hold.Wanted != nil {
		wanted = *hold.Wanted
	}
	return Reply{Lines: []string{fmt.Sprintf("g %d %d %d", hold.Token, hold.Tokens, wanted)}}, true
}

// takePlain acquires a free lock with three commands of Redis, which cost the server less than a
// script does. Others may be served between them, and the order makes that safe:
//
//   - SET NX first: the token is counted while the lock's key is ours, so it is greater than the
//     tokens of all earlier holders. If the key expires in between, so does the grant, which counts
//     from before the request.
//   - HINCRBY then: a count that is not above the last one known is that of a server which has lost
//     its memory since it was checked.
//   - EXISTS last: a queue without a holder is that of waiters who came first.
//
// The answer is that of fastPathScript, or "w" if the lock's key was set but must be taken back.
func (s *sender) takePlain(ctx context.Context, q *slotQueue, cmd *command, check serverCheck) Reply {
	owner, ttl, tokens := cmd.args[0], cmd.args[1], cmd.args[2]
	p := &cmd.plainCalls
	p.texts = [...]string{owner, "PX", ttl, "NX", s.metaKey(q.slot), "t", tokens}
	p.calls = [...]Call{
		{Command: "SET", Keys: cmd.keys[:1], Args: p.texts[:4]},
		{Command: "HINCRBY", Keys: p.texts[4:5], Args: p.texts[5:]},
		{Command: "EXISTS", Keys: cmd.keys[2:3]},
	}
	replies := s.conn.Eval(ctx, p.calls[:]...)
	set, count, queue := replies[0], replies[1], replies[2]
	for _, r := range replies {
		switch {
		case r.Err == nil:
		case isForbidden(r.Err):
			if strings.Contains(r.Err.Error(), "command") { // the scripts can do without HINCRBY
				s.plainDenied.Store(true)
			}
			set.Err = nil // a script will say what is forbidden
		case !errors.As(r.Err, new(*ReplyError)):
			return r // the connection failed
		}
	}
	switch {
	case set.Err != nil:
		return set
	case len(set.Lines) == 0:
		return Reply{Lines: []string{"?"}}
	case len(count.Lines) == 1 && len(queue.Lines) == 1 && queue.Lines[0] == "0":
		if first, ok := s.countPlain(q, count.Lines[0], tokens, check); ok {
			return Reply{Lines: []string{"g " + first + " " + tokens + " 0"}}
		}
	}
	return Reply{Lines: []string{"w"}}
}

// countPlain returns the first token of the block that ends with last, unless the server may not be
// the one that was checked.
func (s *sender) countPlain(q *slotQueue, last, tokens string, check serverCheck) (first string, ok bool) {
	token, err := strconv.ParseUint(last, 10, 63)
	n, _ := strconv.ParseUint(tokens, 10, 63)
	if err != nil || token < check.token+n || token >= maxToken || driver.Now().Sub(check.checkedAt) > plainTimeout {
		return "", false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q.lastCheck.token = max(q.lastCheck.token, token)
	return strconv.FormatUint(token-n+1, 10), true
}
