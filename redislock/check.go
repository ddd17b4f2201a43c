package redislock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
)

// While hints keep coming, the driver verifies less and less often, so that a flood of messages
// does not become a flood of calls.
const (
	minHintPause = 5 * time.Millisecond
	maxHintPause = 500 * time.Millisecond
)

// verifyLater makes the driver ask the store soon whether a lease still exists, and whether it is
// wanted. The caller holds Driver.mu.
func (d *Driver) verifyLater(l *lease) {
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
		slots := map[uint16][]*lease{} // a master that hangs must not hold up those of others
		for l := range d.toVerify {
			if d.leases[l.id] == l {
				slots[l.slot] = append(slots[l.slot], l)
			}
		}
		clear(d.toVerify)
		d.verifying = len(slots) > 0 && !d.life.Over()
		more := d.verifying
		d.mu.Unlock()
		if !more {
			return
		}
		var sent sync.WaitGroup
		for _, leases := range slots {
			sent.Go(func() {
				for some := range slices.Chunk(leases, maxRenewals) { // after a reconnect, it is all leases
					d.verify(some)
				}
			})
		}
		sent.Wait()
		select {
		case <-time.After(pause):
		case <-d.life.Done():
		}
	}
}

// verify asks the store whether leases still exist, and whether another process waits for the lock.
// It tells the holders. Leases that it learns nothing about stay in toVerify.
func (d *Driver) verify(leases []*lease) {
	ctx, cancel := context.WithTimeout(d.life.Context(), batchTimeout)
	defer cancel()
	commands, errs := make([]command, len(leases)), make([]error, len(leases))
	var sent sync.WaitGroup
	for i, l := range leases {
		commands[i] = newCommand(&l.keys, codeVerify, l.jsonID, "")
		sent.Go(func() { errs[i] = asUnavailable(d.sender.send(ctx, l.slot, &commands[i])) })
	}
	sent.Wait()
	for i, l := range leases {
		switch {
		case errors.Is(errs[i], driver.ErrUnavailable):
			d.mu.Lock()
			d.toVerify[l] = struct{}{}
			d.mu.Unlock()
		case errs[i] != nil: // the next renewal reports it
		case commands[i].answer == answerNoHold && d.removeLease(l): // and not released meanwhile
			if l.req.OnLost != nil {
				l.req.OnLost(driver.ErrLost)
			}
		case strings.HasSuffix(commands[i].answer, " 1"):
			l.markWanted()
		}
	}
}
