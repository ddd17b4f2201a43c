package cli

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/redlock/redlockadmin"
)

func (a *app) newRedlockCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:       "redlock init|status|recover [URL]",
		Short:     "manage the nodes of Redlock",
		Example:   redlockExamples,
		Long:      redlockNotes,
		ValidArgs: []string{"init", "status", "recover"},
		Args:      takesAction,
	}
	floor := cmd.Flags().Uint64("floor", 0, "recover: the greatest fencing `TOKEN` that any resource has seen")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if recovers := args[0] == "recover"; recovers != (*floor > 0) {
			return usagef("recover, and only that, needs --floor: the greatest fencing token that any resource has seen")
		}
		nodes, err := a.openNodes(args[1:])
		if err != nil {
			return err
		}
		ctx := cmd.Context()
		switch args[0] {
		case "init":
			if err := nodes.Explain(nodes.Init(ctx)); err != nil {
				return err
			}
		case "recover":
			if err := nodes.Reach(ctx); err != nil {
				return err
			}
			if a.verbose || onTerminal() {
				a.infof("waiting for max-ttl, until no lease is left that the servers may have forgotten")
			}
			if err := nodes.Explain(nodes.Recover(ctx, *floor)); err != nil {
				return err
			}
		}
		return a.reportNodes(ctx, nodes)
	}
	return cmd
}

// openNodes returns the nodes of the URL in args, or of the URL that all commands use.
func (a *app) openNodes(args []string) (*backend.Redlock, error) {
	if err := a.setStoreURL(args); err != nil {
		return nil, err
	}
	url, err := a.storeURL(a.url)
	if err != nil {
		return nil, err
	}
	return backend.Nodes(url)
}

// reportNodes prints the state of the nodes, one on a line. It fails if no majority takes part.
func (a *app) reportNodes(ctx context.Context, nodes *backend.Redlock) error {
	all, err := nodes.Examine(ctx)
	if err != nil {
		return nodes.Explain(err)
	}
	admitted, code := 0, exitUnavailable
	rows := make([][]string, len(all))
	for i, n := range all {
		text := n.State.String()
		if problem := cmp.Or(n.Err, n.Counters); problem != nil {
			text += ": " + message(problem)
		}
		rows[i] = []string{n.Address, printable(text)}
		if n.State == redlockadmin.NodeAdmitted {
			admitted++
		}
		if backend.Denied(n.Err) {
			code = exitNotAllowed
		}
	}
	if err := a.printf("%s", columns(rows)); err != nil {
		return err
	}
	if admitted <= len(all)/2 {
		return failf(code, "%s: %d of %d nodes take part, which is no majority", nodes.URL, admitted, len(all))
	}
	return nil
}
