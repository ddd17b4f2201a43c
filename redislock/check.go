package redislock

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/sniblock/snib/driver"
)

// After hints that changed nothing the store is asked ever more seldom, so that a flood of messages is none of calls.
const (
	minHintPause = 5 * time.Millisecond
	maxHintPause = 500 * time.Millisecond
)

// doubt has the store asked soon whether a lease still exists. It is called with Driver.mu held.
func (d *Driver) doubt(l *lease) {
	if d.doubted == nil {
		d.doubted = make(map[*lease]struct{})
	}
	d.doubted[l] = struct{}{}
	if !d.checking && d.life.Err() == nil {
		d.checking = true
		go d.check()
	}
}

// check asks the store about the leases that are in doubt until there are none.
func (d *Driver) check() {
	for pause := minHintPause; ; pause = min(2*pause, maxHintPause) {
		d.mu.Lock()
		bySlot := make(map[uint16][]*lease)
		for l := range d.doubted {
			if d.leases[l.id] == l {
				bySlot[l.slot] = append(bySlot[l.slot], l)
			}
		}
		clear(d.doubted)
		d.checking = len(bySlot) > 0 && d.life.Err() == nil
		more := d.checking
		d.mu.Unlock()
		if !more {
			return
		}
		for slot, all := range bySlot {
			for len(all) > 0 {
				batch := all[:min(len(all), maxOrders)]
				all = all[len(batch):]
				if d.examine(slot, batch) {
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

// examine asks the store about leases of one slot, tells the holders of those that have ended, and reports whether there were any. Those
// of which it learns nothing stay in doubt.
func (d *Driver) examine(slot uint16, leases []*lease) (ended bool) {
	ctx, cancel := context.WithTimeout(d.life, maxCall)
	defer cancel()
	orders := make([]*order, len(leases))
	for i, l := range leases {
		orders[i] = &order{keys: &l.keys, code: "c", n: 3, args: [6]string{
			l.req.Owner, strconv.FormatUint(l.grant.Token, 10), d.listener.channel(slot),
		}}
	}
	d.sender.call(ctx, &line{slot: slot}, &flight{orders: orders})
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, l := range leases {
		switch o := orders[i]; {
		case d.leases[l.id] != l: // released, or known to be over
		case o.err != nil:
			var answered *ReplyError
			if !errors.As(o.err, &answered) || isTransient(o.err) {
				d.doubted[l] = struct{}{}
			}
		case o.answer == "w":
			l.tell()
		case o.answer == "l":
			ended = true
			delete(d.leases, l.id)
			if l.req.OnLost != nil {
				l.req.OnLost(driver.ErrLost)
			}
		}
	}
	return ended
}
