package serve

import (
	"context"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock/wire"
)

// A reservation is a hold without a process. Nobody renews it: its TTL is for how long the lock is
// reserved. In the store, it has [driver.KindReserved].

// checkReservation completes a message that reserves a lock.
func (s *Service) checkReservation(msg *wire.Acquire) error {
	switch {
	case msg.Label == "":
		return errNoNote()
	case msg.Wait != 0:
		return invalidf("wait_ms: a reservation does not wait")
	case msg.Process != (wire.Process{Label: msg.Label}):
		return invalidf("host, pid, kind: a reservation has no process")
	case msg.TTL == 0 && s.info.MaxTTL > 0 && s.info.MaxTTL < driver.LongestTTL:
		return invalidf("ttl_ms: it is missing; this store keeps a lock for at most %d", s.info.MaxTTL/time.Millisecond)
	case msg.TTL == 0:
		msg.TTL = int64(driver.LongestTTL / time.Millisecond)
	}
	return nil
}

// errNoNote reports a reservation without a label.
func errNoNote() error {
	return invalidf("label: it is missing; it says to others why the lock is reserved")
}

func isReserved(h driver.Holder) bool { return h.Kind == driver.KindReserved }

// takeOverReservation gives a reservation another label.
func (s *Service) takeOverReservation(ctx context.Context, name string, token uint64, label string) error {
	st, err := s.driver.Status(ctx, name)
	if err != nil {
		return err
	}
	h, err := findIn(st, func(h driver.Holding) bool { return h.Token == token && isReserved(h.Holder) })
	if err == nil {
		h.Holder.Label = label
		err = s.driver.Lease(name, h.ID, h.Left).SetHolder(ctx, h.Holder)
	}
	return orChanged(err)
}
