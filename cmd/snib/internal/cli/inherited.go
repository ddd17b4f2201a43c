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
