package quorumtest

import (
	"fmt"
	"slices"
)

// A judge knows the true time and all clients' clocks, and reports broken promises.
type judge struct {
	w          *world
	greatest   []uint64           // the greatest token of complete acquisitions, by lock
	usedTokens map[uint64]*client // who had each token first
	holds      [][]*hold          // those that are not over, by lock
	violations []string

	acquisitions, renewals, admissions int

	overlaps, disorders int // allowed by the cell
}

// reportf reports a violation.
func (j *judge) reportf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	j.violations = append(j.violations, text)
	j.w.log("JUDGE", "VIOLATION: %s", text)
}

// checkAcquired checks a hold that begins now.
func (j *judge) checkAcquired(h *hold) {
	j.acquisitions++
	if !h.valid() {
		j.reportf("%s has lock %d by #%d when it is not valid any more", h.c.name, h.lock, h.nonce)
	}
	j.checkTokens(h)
	j.checkExclusive(h)
	j.holds[h.lock] = append(j.holds[h.lock], h)
}

// checkTokens checks the tokens of a hold.
func (j *judge) checkTokens(h *hold) {
	var what string
	id := func(token uint64) uint64 { return token*uint64(j.w.locks) + uint64(h.lock) }
	if h.first <= h.floor {
		what = fmt.Sprintf("%s has lock %d with token %d, but %d was granted before #%d began", h.c.name, h.lock, h.first,
			h.floor, h.nonce)
	}
	for t := h.first; t <= h.last; t++ {
		if was := j.usedTokens[id(t)]; was != nil {
			what = fmt.Sprintf("%s has lock %d by #%d with token %d, for the second time", h.c.name, h.lock, h.nonce, t)
		}
		j.usedTokens[id(t)] = h.c
	}
	j.greatest[h.lock] = max(j.greatest[h.lock], h.last)
	switch {
	case what == "":
	case j.w.cell.Disorder:
		j.disorders++
		j.w.log("JUDGE", "allowed here: %s", what)
	default:
		j.reportf("%s", what)
	}
}

// checkExclusive checks that no other hold of the lock is valid.
func (j *judge) checkExclusive(h *hold) {
	for _, other := range j.holds[h.lock] {
		if other == h || !other.valid() {
			continue
		}
		what := fmt.Sprintf("%s has lock %d by #%d, which %s has by #%d for another %v", h.c.name, h.lock, h.nonce,
			other.c.name, other.nonce, other.end.Left(other.c.instant()))
		if j.w.cell.Overlaps {
			j.overlaps++
			j.w.log("JUDGE", "allowed here: %s", what)
		} else {
			j.reportf("%s", what)
		}
	}
}

// checkRenewal checks a renewal that is about to count.
func (j *judge) checkRenewal(h *hold) {
	j.renewals++
	if !h.valid() {
		j.reportf("%s renews lock %d of #%d, which has ended", h.c.name, h.lock, h.nonce)
	}
	j.checkExclusive(h)
}

// removeHold records the end of a hold.
func (j *judge) removeHold(h *hold) {
	j.holds[h.lock] = slices.DeleteFunc(j.holds[h.lock], func(other *hold) bool { return other == h })
}

// removeClient records the end of a client.
func (j *judge) removeClient(c *client) {
	for lock := range j.holds {
		j.holds[lock] = slices.DeleteFunc(j.holds[lock], func(h *hold) bool { return h.c == c })
	}
}

// checkKey checks what a request did to a key, given its state before.
func (j *judge) checkKey(m *machine, r Request, before key) {
	if r.Op > Free || before.nonce == 0 || before.nonce == r.Nonce {
		return
	}
	if after := m.peek(r.Name); after != before {
		j.reportf("%v on %s changes the key of #%d from %+v to %+v", r, m.name, before.nonce, before, after)
	}
}
