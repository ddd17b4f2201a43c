package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/cmd/snib/internal/child"
)

func (a *app) newRedisCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:       "redis forget [URL]",
		Short:     "let a Redis that restarted grant locks again",
		Example:   redisExamples,
		Long:      redisNotes,
		ValidArgs: []string{"forget"},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usagef("%d arguments were given: usage: %s", len(args), usageLine(cmd))
			}
			if !slices.Contains(cmd.ValidArgs, args[0]) {
				return usagef("there is no command redis %q; usage: %s", args[0], usageLine(cmd))
			}
			return nil
		},
	}
	yes := cmd.Flags().BoolP("yes", "y", false, "don't ask")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.setStoreURL(args[1:]); err != nil {
			return err
		}
		if !*yes && !child.IsTerminal(os.Stdin) {
			return usagef("there is no terminal to ask on; give --yes to end the grace period without asking")
		}
		s, err := a.open(backend.Take)
		if err != nil {
			return err
		}
		defer s.Close() //nolint:errcheck // nothing is left to do
		if !*yes {
			if err := a.confirmForget(s); err != nil {
				return err
			}
		}
		err = s.Forget(cmd.Context())
		if !errors.Is(err, backend.ErrConfig) {
			a.auditForget(s, err)
		}
		return err
	}
	return cmd
}

// confirmForget asks the user to type yes.
func (a *app) confirmForget(s *backend.Store) error {
	a.infof("a holder that %s has forgotten may still be at work, and another can then start beside it", s.URL)
	fmt.Fprint(a.err, "type yes if nobody holds a lock: ")
	text, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil || strings.TrimSpace(text) != "yes" {
		return usagef("that is not yes: nothing was done")
	}
	return nil
}

// auditForget logs who made the store grant locks again to standard error, even with
// --quiet: one line of JSON.
func (a *app) auditForget(s *backend.Store, err error) {
	attrs := []slog.Attr{slog.String("backend", s.Driver.Info().Backend), slog.String("store", s.URL)}
	outcome := "ended"
	if err != nil {
		outcome = "unknown"
		attrs = append(attrs, slog.Any("err", err))
	}
	attrs = append(append(attrs, slog.String("outcome", outcome)), caller()...)
	slog.New(slog.NewJSONHandler(a.err, nil)).LogAttrs(context.Background(), slog.LevelWarn, "grace ended by force", attrs...)
}
