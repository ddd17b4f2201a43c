package redislock

import (
	"context"
	"errors"
	"time"

	"github.com/sniblock/snib/driver"
)

// After hints that turned out to change nothing, the driver verifies less and less often, so
// that a flood of messages does not become a flood of calls.
const (
	minHintPause = 5 * time.Millisecond
	maxHintPause = 500 * time.Millisecond
)

// verifyLater makes the driver ask the store soon whether a lease still exists. The caller
// holds Driver.mu.
func (d *Driver) verifyLater(l *lease) {
	if d.toVerify == nil {
		d.toVerify = make(map[*lease]struct{})
	}
	d.toVerify[l] = struct{}{}
	if !d.verifying && !d.life.Over() {
		d.verifying = true
		go d.verifyLoop()
	}
}

// verifyLoop verifies the leases in toVerify until there are none.
func (d *Driver) verifyLoop() {
	for pause := minHintPause; ; pause = min(2*pause, maxHintPause) {
		d.mu.Lock()
		bySlot := make(map[uint16][]*lease)
		for l := range d.toVerify {
			if d.leases[l.id] == l {
				bySlot[l.slot] = append(bySlot[l.slot], l)
			}
		}
		clear(d.toVerify)
		d.verifying = len(bySlot) > 0 && !d.life.Over()
		more := d.verifying
		d.mu.Unlock()
		if !more {
			return
		}
		for slot, all := range bySlot {
			for len(all) > 0 {
				batch := all[:min(len(all), maxBatch)]
				all = all[len(batch):]
				if d.verify(slot, batch) {
					pause = minHintPause
				}
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-d.life.Done():
			timer.Stop()
		}
	}
}

// verify asks the store whether leases of one slot still exist. It tells the holders of those
// that have ended, and reports whether there were any. Leases that it learns nothing about stay
// in toVerify.
func (d *Driver) verify(slot uint16, leases []*lease) (ended bool) {
	ctx, cancel := context.WithTimeout(d.life.Context(), batchTimeout)
	defer cancel()
	commands := make([]*command, len(leases))
	for i, l := range leases {
		cmd := newCommand(&l.keys, codeCheck, l.jsonID, l.d.listener.channel(l.slot))
		commands[i] = &cmd
	}
	d.sender.sendBatch(ctx, &batch{slot: slot, commands: commands})
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, l := range leases {
		switch cmd := commands[i]; {
		case d.leases[l.id] != l: // released, or known to have ended
		case cmd.err != nil:
			var replyErr *ReplyError
			if !errors.As(cmd.err, &replyErr) || isTransient(cmd.err) {
				d.toVerify[l] = struct{}{}
			}
		case cmd.answer == answerWanted:
			l.markWanted()
		case cmd.answer == answerNoHold:
			ended = true
			delete(d.leases, l.id)
			if l.req.OnLost != nil {
				l.req.OnLost(driver.ErrLost)
			}
		}
	}
	return ended
}
