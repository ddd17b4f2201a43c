package serve

import (
	"context"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock/wire"
)

// A reservation is a hold without a process. Nobody renews it: its TTL is for how long the lock is
// reserved. In the store, its label begins with [driver.ReservedLabel].

// longestReservation is the TTL of a reservation without an end.
const longestReservation = 10 * 365 * 24 * time.Hour

// checkReservation completes a message that reserves a lock.
func (s *Service) checkReservation(msg *wire.Acquire) error {
	switch {
	case msg.Label == "":
		return errNoNote()
	case msg.Wait != 0:
		return invalidf("wait_ms: a reservation does not wait")
	case msg.Host != "" || msg.PID != 0:
		return invalidf("host, pid: a reservation has no process")
	case msg.TTL == 0 && s.info.MaxTTL > 0 && s.info.MaxTTL < longestReservation:
		return invalidf("ttl_ms: it is missing; this store keeps a lock for at most %d", s.info.MaxTTL/time.Millisecond)
	case msg.TTL == 0:
		msg.TTL = int64(longestReservation / time.Millisecond)
	}
	msg.Label = driver.ReservedLabel + msg.Label
	return nil
}

// errNoNote reports a reservation without a label.
func errNoNote() error {
	return invalidf("label: it is missing; it says to others why the lock is reserved")
}

// asKind returns a label for a hold that is a reservation, or is none.
func asKind(label string, reserved bool) string {
	if reserved {
		return driver.ReservedLabel + label
	}
	return label
}

// checkLabel reports a label that nobody may choose, because it means something to snib.
func checkLabel(label string) error {
	switch {
	case strings.HasPrefix(label, driver.ReservedLabel):
		return invalidf("label: it can't begin with %q; set reserve to reserve a lock", driver.ReservedLabel)
	case strings.HasPrefix(label, "snib:"):
		return invalidf(`label: it can't begin with "snib:", which marks labels of snib itself; choose another text`)
	}
	return checkText("label", label, wire.MaxLabel)
}

// shown returns a process as people see it, and whether it is a reservation instead.
func shown(h driver.Holder) (_ wire.Process, reserved bool) {
	h, _ = withoutWaitingLabel(h)
	h.Label, reserved = strings.CutPrefix(h.Label, driver.ReservedLabel)
	return wire.Process(h), reserved
}

// takeOverReservation gives a reservation another label.
func (s *Service) takeOverReservation(ctx context.Context, name string, token uint64, label string) error {
	f, err := s.findWhere(ctx, name, func(h driver.Holding) bool { return h.Token == token && h.Holder.IsReserved() })
	if err == nil {
		err = s.setLabelOf(ctx, f, label)
	}
	return orChanged(err)
}
