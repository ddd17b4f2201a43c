package redislock

import (
	"context"

	"github.com/sniblock/snib/driver"
)

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
