package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

// add counts a lock.
func (c *countJSON) add(st driver.Status) {
	c.Locks++
	c.Holders += len(st.Holders)
	c.Waiters += len(st.Waiters)
	if len(st.Holders) > 0 && isForeign(st.Holders[0]) {
		c.Foreign++
	}
	switch mode(st) {
	case "free":
		return
	case "shared":
		c.Shared++
	case "slots":
		c.Slots++
	}
	c.Held++
}

// count prints how many locks there are, and keeps none of them in memory.
func (a *app) count(ctx context.Context, s *backend.Store, prefix string, foreign bool, output string) error {
	c := countJSON{Schema: "snib.count/1", Store: s.URL, Prefix: prefix}
	if err := forEachLockOf(ctx, s, prefix, foreign, c.add); err != nil {
		return err
	}
	return a.print(output, result{
		document: func() any { return c },
		text: func() string {
			held := fmt.Sprint(c.Held)
			if c.Shared+c.Slots > 0 {
				held += fmt.Sprintf(" (%d shared, %d with slots)", c.Shared, c.Slots)
			}
			text := fmt.Sprintf("locks    %d\nheld     %s\nholders  %d\nwaiters  %d\n", c.Locks, held, c.Holders, c.Waiters)
			if foreign {
				text += fmt.Sprintf("foreign  %d\n", c.Foreign)
			}
			return text
		},
	})
}

// forEachLockOf calls fn for the locks whose names start with prefix, and then, if foreign is set,
// for those of other libraries. One of these is among the former if snib waits for it.
func forEachLockOf(ctx context.Context, s *backend.Store, prefix string, foreign bool, fn func(driver.Status)) error {
	waitedFor := make(map[string]bool) // those of other libraries
	err := s.List(ctx, prefix, func(st driver.Status) bool {
		if foreign && len(st.Holders) > 0 && isForeign(st.Holders[0]) {
			waitedFor[st.Name] = true
		}
		fn(st)
		return true
	})
	if err != nil || !foreign {
		return err
	}
	err = s.Foreign(ctx, prefix, func(st driver.Status) bool {
		if !waitedFor[st.Name] {
			fn(st)
		}
		return true
	})
	if errors.Is(err, errors.ErrUnsupported) {
		return failf(exitConfig, "--foreign: only in Redis can locks of other libraries be listed beside those of snib")
	}
	return err
}
