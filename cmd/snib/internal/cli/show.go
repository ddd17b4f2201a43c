package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

func (a *app) newShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "show NAME",
		Short:             "print all about one lock: holder, lease, token and queue",
		Example:           showExamples,
		Args:              oneDisplayedName,
		ValidArgsFunction: a.completeName,
	}
	output := addOutput(cmd, "table", "json")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return a.withStore(backend.Look, func(ctx context.Context, s *backend.Store) error {
			st, err := s.Status(ctx, args[0])
			if err != nil {
				return err
			}
			st.Name = args[0]
			return a.printShow(s, st, output.value)
		})
	}
	return cmd
}

// printShow prints a lock.
func (a *app) printShow(s *backend.Store, st driver.Status, output string) error {
	return a.print(output, result{
		document: func() any { return showJSON{"snib.show/1", s.URL, toLock(st)} },
		text:     func() string { return lockText(st) },
	})
}

// lockText returns who holds a lock and who waits for it.
func lockText(st driver.Status) string {
	var b strings.Builder
	writeField(&b, "name", listedName(st.Name))
	writeField(&b, "mode", describeMode(st))
	for _, h := range st.Holders {
		writeHolder(&b, h)
		if h.Inherited {
			writeField(&b, "  kept by", describeHeirs(h)+": the holder is gone, and these processes keep the lock until they end")
		} else {
			writeField(&b, "  lease left", leaseLeft(h))
		}
	}
	for i, w := range st.Waiters {
		text := fmt.Sprintf("%d. %s", i+1, waiterName(w))
		if w.Shared {
			text += ", shared"
		}
		writeField(&b, "waiting", text)
	}
	return b.String()
}

// writeHolder writes who has, or had, a hold, and since when.
func writeHolder(b *strings.Builder, h driver.Holding) {
	writeField(b, "holder", holderName(h))
	if digest := idDigest(h); digest != "" {
		writeField(b, "  id", digest+" (digest)")
	}
	if h.Count > 0 {
		writeField(b, "  acquired", plural(h.Count, "time"))
	}
	if isForeign(h) {
		writeField(b, "  token", "none: not taken by snib")
		return
	}
	writeField(b, "  token", tokenText(h))
	writeField(b, "  since", sinceText(h))
}

// sinceText returns when a hold was granted and how long ago, or "-" if that is unknown.
func sinceText(h driver.Holding) string {
	if h.Held == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s)", time.Now().Add(-h.Held).UTC().Format(time.RFC3339), short(h.Held))
}

func writeField(b *strings.Builder, name, value string) { writeTerm(b, name, value, 14) }

func describeMode(st driver.Status) string {
	if len(st.Holders) > 0 && isUnbreakable(st.Holders[0]) {
		return "in use, perhaps not as a lock"
	}
	switch mode(st) {
	case "slots":
		return fmt.Sprintf("semaphore: %d of %d slots taken", len(st.Holders), st.Slots)
	case "shared":
		return fmt.Sprintf("shared by %d", len(st.Holders))
	case "exclusive":
		return "held, exclusive"
	}
	return "free"
}

func describeFencing(f driver.Fencing) string {
	switch f {
	case driver.FencingDurable:
		return "durable: tokens grow as long as the store keeps what it has acknowledged"
	case driver.FencingClock:
		return "clock: tokens grow while the store remembers, and across a loss of its memory if clocks are right"
	}
	return "none: tokens say nothing here"
}
