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
		var leases []driver.Lease
		for l := range d.toVerify {
			if d.leases[l.id] == l {
				leases = append(leases, l)
			}
		}
		clear(d.toVerify)
		d.verifying = len(leases) > 0 && !d.life.Over()
		more := d.verifying
		d.mu.Unlock()
		if !more {
			return
		}
		if d.verify(leases) {
			pause = minHintPause
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-d.life.Done():
			timer.Stop()
		}
	}
}

// verify asks the store whether leases still exist, by a renewal for no time. It tells the holders
// of those that have ended, and reports whether there were any. Leases that it learns nothing
// about stay in toVerify.
func (d *Driver) verify(leases []driver.Lease) (ended bool) {
	ctx, cancel := context.WithTimeout(d.life.Context(), batchTimeout)
	defer cancel()
	for i, answer := range d.renew(ctx, leases, "0") {
		l := leases[i].(*lease)
		switch {
		case errors.Is(answer.Err, driver.ErrUnavailable):
			d.mu.Lock()
			d.toVerify[l] = struct{}{}
			d.mu.Unlock()
		case errors.Is(answer.Err, driver.ErrLost) && d.removeLease(l): // and not released meanwhile
			ended = true
			if l.req.OnLost != nil {
				l.req.OnLost(driver.ErrLost)
			}
		}
	}
	return ended
}
