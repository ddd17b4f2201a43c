// Package timeline shows what several processes did, as lines of text or as a drawing with a lane
// for each, and who believed that it held a lock.
package timeline

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
)

// An Event is what one lane did at a moment. Its texts may contain no-break spaces.
type Event struct {
	At   time.Duration // since the begin
	Lane string        // one of the timeline's lanes
	Text string

	// Server is what changed on the server by it, or "". It belongs into the last lane.
	Server string

	Holders []string // the lanes of the clients that believe from then on that they hold the lock
}

// setHolders sets which of the lanes hold the lock after an event.
func setHolders(holds []bool, lanes []string, e Event) {
	for i, lane := range lanes {
		holds[i] = slices.Contains(e.Holders, lane)
	}
}

// spaced returns text with normal spaces instead of no-break spaces.
func spaced(text string) string { return strings.ReplaceAll(text, "\u00a0", " ") }

// wrap breaks text into lines of a width.
func wrap(text string, width int) []string {
	return strings.Split(spaced(ansi.Wrap(text, width, "")), "\n")
}

// seconds formats the time of an event.
func seconds(at time.Duration) string { return fmt.Sprintf("%.3f s", at.Seconds()) }

// The results of barColor.
const (
	one  = "one"
	many = "many"
)

// barColor returns the color of the bars of those who believe that they hold the lock: many if
// there are several.
func barColor(holds []bool) string {
	holders := 0
	for _, h := range holds {
		if h {
			holders++
		}
	}
	if holders > 1 {
		return many
	}
	return one
}
