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

func (a *app) showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "show NAME",
		Short:             "tell all about one lock: holder, lease, token, queue, and what it rests on",
		Example:           showExamples,
		Args:              oneName,
		ValidArgsFunction: a.completeName,
	}
	output := addOutput(cmd, "table", "json", "name")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return a.view(func(ctx context.Context, s *backend.Store) error {
			st, err := status(ctx, s, args[0])
			if err != nil {
				return err
			}
			st.Name = args[0]
			grace, err := s.RestartGrace(ctx)
			if err != nil {
				return err
			}
			return a.printShow(s, st, grace, output.value)
		})
	}
	return cmd
}

// printShow prints a lock. Grace is for how long a restart of the store would withhold it.
func (a *app) printShow(s *backend.Store, st driver.Status, grace time.Duration, output string) error {
	info := s.Info()
	switch output {
	case "json":
		return a.printJSON(struct {
			Schema string `json:"schema"`
			Store  string `json:"store"`
			inheritedLockJSON
			Grace       float64  `json:"restart_grace,omitempty"` // in seconds
			Tenure      string   `json:"tenure"`
			Fencing     string   `json:"fencing"`
			Fairness    string   `json:"fairness"`
			Assumptions []string `json:"assumptions"`
		}{
			"snib.show/1", s.URL, toInheritedLock(st), grace.Seconds(), info.Tenure.String(), info.Fencing.String(), info.Fairness.String(),
			info.Assumptions,
		})
	case "name":
		return a.printf("%s\n", listed(st.Name))
	}
	var b strings.Builder
	field(&b, "name", listed(st.Name))
	field(&b, "mode", longMode(st))
	for _, h := range st.Holders {
		holder(&b, h)
		if h.Inherited {
			field(&b, "  kept by", heirs(h)+": the holder is gone, and these keep the lock until they end")
		} else {
			field(&b, "  lease left", left(h))
		}
	}
	for i, w := range st.Waiters {
		text := fmt.Sprintf("%d. %s, for %s", i+1, describe(w.Holder), short(w.Waited))
		if w.Shared {
			text += ", shared"
		}
		field(&b, "waiting", text)
	}
	if grace > 0 {
		field(&b, "restart", "a restart of the store now would withhold all locks for "+short(grace))
	}
	promises(&b, s.URL, info)
	return a.printf("%s", b.String())
}

// holder tells who has, or had, a hold, and since when.
func holder(b *strings.Builder, h driver.Holding) {
	field(b, "holder", who(h))
	field(b, "  owner", cut(printable(h.Owner), driver.MaxName))
	if foreign(h) {
		field(b, "  token", "none: not taken by snib")
		return
	}
	field(b, "  token", token(h))
	field(b, "  since", since(h))
}

// since is when a hold was granted, and how long ago, if that is known.
func since(h driver.Holding) string {
	if h.Held == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s)", time.Now().Add(-h.Held).UTC().Format(time.RFC3339), short(h.Held))
}

// promises says what the store promises and what that rests on.
func promises(b *strings.Builder, url string, info driver.Info) {
	field(b, "store", printable(url))
	field(b, "fencing", fencing(info.Fencing))
	for _, text := range info.Assumptions {
		if unmet, ok := strings.CutPrefix(text, unmetPrefix); ok {
			field(b, "warning", printable(unmet))
			continue
		}
		field(b, "rests on", printable(text))
	}
}

// unmetPrefix begins an assumption of which the driver knows that it does not hold.
const unmetPrefix = "not met: "

func field(b *strings.Builder, name, value string) { wrap(b, name, value, 14) }

func longMode(st driver.Status) string {
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

func fencing(f driver.Fencing) string {
	switch f {
	case driver.FencingDurable:
		return "durable: tokens grow as long as the store keeps what it has acknowledged"
	case driver.FencingClock:
		return "clock: tokens grow while the store remembers; after that it takes right clocks"
	}
	return "none: tokens say nothing here"
}
