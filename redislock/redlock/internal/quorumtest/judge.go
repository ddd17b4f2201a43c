package quorumtest

import (
	"fmt"
	"slices"
)

// A judge knows the true time and all clients' clocks, and says when a promise is broken.
type judge struct {
	w          *world
	greatest   []uint64            // the last token of those that are complete, by lock
	taken      map[uint64]struct{} // tokens
	holds      [][]*hold           // that are not over, by lock
	violations []string

	acquisitions, renewals, admissions int
	overlaps, disorders                int // that the cell allows
}

// wrong reports a violation.
func (j *judge) wrong(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	j.violations = append(j.violations, text)
	j.w.log("JUDGE", "VIOLATION: %s", text)
}

// acquired judges a hold that begins now.
func (j *judge) acquired(h *hold) {
	j.acquisitions++
	if !h.valid() {
		j.wrong("%s has lock %d by #%d when it is not valid any more", h.c.name, h.lock, h.nonce)
	}
	j.tokens(h)
	j.alone(h)
	j.holds[h.lock] = append(j.holds[h.lock], h)
}

// tokens judges the tokens of a hold.
func (j *judge) tokens(h *hold) {
	var what string
	if h.first <= h.floor {
		what = fmt.Sprintf("%s has lock %d with token %d, but %d was granted before #%d began", h.c.name, h.lock, h.first, h.floor, h.nonce)
	}
	for t := h.first; t <= h.last; t++ {
		id := t*uint64(j.w.locks) + uint64(h.lock)
		if _, ok := j.taken[id]; ok {
			what = fmt.Sprintf("%s has lock %d by #%d with token %d, for the second time", h.c.name, h.lock, h.nonce, t)
		}
		j.taken[id] = struct{}{}
	}
	j.greatest[h.lock] = max(j.greatest[h.lock], h.last)
	switch {
	case what == "":
	case j.w.cell.Disorder:
		j.disorders++
		j.w.log("JUDGE", "allowed here: %s", what)
	default:
		j.wrong("%s", what)
	}
}

// alone judges that no other hold of the lock is valid.
func (j *judge) alone(h *hold) {
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
			j.wrong("%s", what)
		}
	}
}

// extending judges a renewal that is about to count.
func (j *judge) extending(h *hold) {
	j.renewals++
	if !h.valid() {
		j.wrong("%s renews lock %d of #%d, which has ended", h.c.name, h.lock, h.nonce)
	}
	j.alone(h)
}

// ended takes note of the end of a hold.
func (j *judge) ended(h *hold) {
	j.holds[h.lock] = slices.DeleteFunc(j.holds[h.lock], func(other *hold) bool { return other == h })
}

// died takes note of the end of a client.
func (j *judge) died(c *client) {
	for lock := range j.holds {
		j.holds[lock] = slices.DeleteFunc(j.holds[lock], func(h *hold) bool { return h.c == c })
	}
}

// touched judges what a request did to a key, which was as before.
func (j *judge) touched(m *machine, r Request, before key) {
	if r.Op > Free || before.nonce == 0 || before.nonce == r.Nonce {
		return
	}
	if after := m.peek(r.Name); after != before {
		j.wrong("%v on %s changes the key of #%d from %+v to %+v", r, m.name, before.nonce, before, after)
	}
}
