package cli

import (
	"fmt"
	"strings"

	"github.com/sniblock/snib/driver"
)

// describeHeirs names the processes that keep a hold whose own process is gone.
func describeHeirs(h driver.Holding) string {
	var all []string
	for _, k := range h.Heirs {
		text := fmt.Sprintf("pid %d", k.PID)
		if k.Label != "" {
			text += " (" + k.Label + ")"
		}
		all = append(all, text)
	}
	if len(all) == 0 {
		return "a process that can't be seen"
	}
	return printable(strings.Join(all, ", "))
}

// describeEnd says when a hold ends, for the end of a sentence about it.
func describeEnd(h driver.Holding) string {
	if h.Inherited {
		return "that process is gone, but processes that it started keep the lock: " + describeHeirs(h)
	}
	return leaseEnd(h)
}

// An inheritedJSON is a holder with the heirs of its hold.
type inheritedJSON struct {
	holderJSON
	Inherited bool       `json:"inherited,omitempty"` // the holder is gone, and left means nothing
	Heirs     []heirJSON `json:"heirs,omitempty"`     // as far as they can be seen
}

type heirJSON struct {
	PID   int    `json:"pid"`
	Label string `json:"label,omitempty"`
}

func toInherited(h driver.Holding) inheritedJSON {
	j := inheritedJSON{holderJSON: toHolder(h), Inherited: h.Inherited}
	for _, k := range h.Heirs {
		j.Heirs = append(j.Heirs, heirJSON{k.PID, k.Label})
	}
	return j
}

// An inheritedLockJSON is a lockJSON whose holders include the heirs of their holds.
type inheritedLockJSON struct {
	Name    string          `json:"name"`
	Mode    string          `json:"mode"`
	Slots   int             `json:"slots,omitempty"`
	Holders []inheritedJSON `json:"holders"`
	Waiters []waiterJSON    `json:"waiters"`
}

func toInheritedLock(st driver.Status) inheritedLockJSON {
	plain := toJSON(st)
	l := inheritedLockJSON{plain.Name, plain.Mode, plain.Slots, []inheritedJSON{}, plain.Waiters}
	for _, h := range st.Holders {
		l.Holders = append(l.Holders, toInherited(h))
	}
	return l
}
