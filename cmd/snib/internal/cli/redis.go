package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
)

func (a *app) newRedisCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:       "redis forget [URL]",
		Short:     "let a Redis that restarted grant locks again",
		Example:   redisExamples,
		Long:      redisNotes,
		ValidArgs: []string{"forget"},
		Args:      takesAction,
	}
	yes := cmd.Flags().BoolP("yes", "y", false, "don't ask")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if err := a.setStoreURL(args[1:]); err != nil {
			return err
		}
		if err := checkYes(*yes); err != nil {
			return err
		}
		return a.withStore(backend.Take, func(ctx context.Context, s *backend.Store) error {
			if !*yes {
				a.infof("a holder that %s has forgotten may still be at work, and another can then start beside it", s.URL)
				if err := a.ask("type yes if nobody holds a lock: ", "yes"); err != nil {
					return err
				}
			}
			err := s.Forget(ctx)
			if !errors.Is(err, backend.ErrConfig) {
				a.audit(s, "grace ended by force", "ended", err)
			}
			return err
		})
	}
	return cmd
}
