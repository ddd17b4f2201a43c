package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

// A census is what "snib count" counts.
type census struct {
	Locks   int `json:"locks"` // held or waited for
	Held    int `json:"held"`
	Shared  int `json:"shared"` // of those that are held, on the read side
	Slots   int `json:"slots"`  // of those that are held, semaphores
	Holders int `json:"holders"`
	Waiters int `json:"waiters"`
}

func (c *census) add(st driver.Status) {
	c.Locks++
	c.Holders += len(st.Holders)
	c.Waiters += len(st.Waiters)
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

func (a *app) countCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "count [PREFIX]",
		Short:             "count the locks that are held or waited for, their holders and waiters",
		Example:           countExamples,
		Long:              countNotes,
		Args:              atMostOne,
		ValidArgsFunction: a.completeName,
	}
	output := addOutput(cmd, "table", "json", "number")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return a.view(func(ctx context.Context, s *backend.Store) error {
			return a.count(ctx, s, strings.Join(args, ""), output.value)
		})
	}
	return cmd
}

// atMostOne is the argument check of commands that take a prefix, or nothing.
func atMostOne(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return none(cmd, args[1:])
	}
	return nil
}

func (a *app) count(ctx context.Context, s *backend.Store, prefix, output string) error {
	var c census
	line := a.progress()
	err := each(ctx, s, prefix, func(st driver.Status) bool {
		c.add(st)
		line.show("%s so far", plural(c.Locks, "lock"))
		return true
	})
	line.clear()
	if err != nil {
		return err
	}
	switch output {
	case "json":
		return a.printJSON(struct {
			Schema string `json:"schema"`
			Store  string `json:"store"`
			Prefix string `json:"prefix"`
			census
		}{"snib.count/1", s.URL, prefix, c})
	case "number":
		return a.printf("%d\n", c.Locks)
	}
	held := fmt.Sprint(c.Held)
	if c.Shared+c.Slots > 0 {
		held += fmt.Sprintf(" (%d shared, %d with slots)", c.Shared, c.Slots)
	}
	return a.printf("locks    %d\nheld     %s\nholders  %d\nwaiters  %d\n", c.Locks, held, c.Holders, c.Waiters)
}

// each calls fn for the locks whose names start with prefix, one at a time, until it returns false.
func each(ctx context.Context, s *backend.Store, prefix string, fn func(driver.Status) bool) error {
	i, err := inspector(s)
	if err != nil {
		return err
	}
	if err := i.List(ctx, prefix, fn); err != nil {
		return fmt.Errorf("%s: %w", s.URL, err)
	}
	return nil
}
