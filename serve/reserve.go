package serve

import (
	"context"
	"errors"
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
		return invalidf("label: it is missing; it says to others why the lock is reserved")
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

// asKind returns a label for a hold that is a reservation, or is none.
func asKind(label string, reserved bool) string {
	if reserved {
		return driver.ReservedLabel + label
	}
	return label
}

// checkLabel reports a label that nobody may choose.
func checkLabel(label string) error {
	if strings.HasPrefix(label, driver.ReservedLabel) {
		return invalidf("label: it can't begin with %q; set reserve to reserve a lock", driver.ReservedLabel)
	}
	return checkText("label", label, wire.MaxLabel)
}

// shown returns a process as people see it, and whether it is a reservation instead.
func shown(h driver.Holder) (_ wire.Process, reserved bool) {
	h, _ = withoutWaitingLabel(h)
	h.Label, reserved = strings.CutPrefix(h.Label, driver.ReservedLabel)
	return wire.Process(h), reserved
}

// errChanged is the answer to a request about a hold that has ended.
func errChanged() error {
	return wire.NewProblem(wire.ProblemChanged, "the lock has no such hold with this token any more: nothing was done", 0)
}

// findReservation returns the reservation with a token.
func (s *Service) findReservation(ctx context.Context, name string, token uint64) (*found, error) {
	st, err := s.inspector.Status(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, h := range st.Holders {
		if h.Token == token && h.Holder.IsReserved() {
			return &found{h, name, st.Shared, st.Slots}, nil
		}
	}
	return nil, errChanged()
}

// takeOverReservation gives a reservation another label.
func (s *Service) takeOverReservation(ctx context.Context, name string, token uint64, label string) error {
	f, err := s.findReservation(ctx, name, token)
	if err != nil {
		return err
	}
	c, err := s.awaitTakeOver(ctx, f, max(f.Left, time.Second), 0)
	if err == nil {
		err = c.lease.SetLabel(ctx, driver.ReservedLabel+label)
	}
	if errors.Is(err, driver.ErrLost) {
		return errChanged()
	}
	return err
}

// endReservation ends a reservation, whoever made it.
func (s *Service) endReservation(ctx context.Context, name string, token uint64) error {
	f, err := s.findReservation(ctx, name, token)
	if err != nil {
		return err
	}
	err = s.inspector.Break(ctx, name, f.Owner, f.Token)
	if errors.Is(err, driver.ErrLost) {
		return errChanged()
	}
	return err
}
