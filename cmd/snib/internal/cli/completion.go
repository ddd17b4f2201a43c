package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
)

func (a *app) newCompletionCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "completion bash|zsh|fish|powershell",
		Short:     "print a script that completes commands, flags and the names of locks",
		Example:   completionExamples,
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		Args:      takes(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch root, out := cmd.Root(), a.out; args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			default:
				return root.GenPowerShellCompletionWithDesc(out)
			}
		},
	}
}

// completeName completes the names of locks that are in use now, and describes each. It returns
// nothing if the store is slower than feedbackInterval.
func (a *app) completeName(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	answered := within(feedbackInterval, func() { // the user waits for the shell to react
		// A shell has no use for an error.
		_ = a.withStore(backend.Look, func(ctx context.Context, s *backend.Store) error {
			all, err := list(ctx, s, prefix, false)
			for _, st := range all {
				who := plural(len(st.Waiters), "waiter")
				if len(st.Holders) > 0 {
					who = heldBy(st.Holders[0])
				}
				if shellQuote(st.Name) == st.Name { // shells insert other names unquoted
					names = append(names, cobra.CompletionWithDesc(st.Name, who))
				}
			}
			return err
		})
	})
	if !answered {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeURL completes the schemes of URLs.
func (a *app) completeURL(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var schemes []string
	for _, s := range backend.Schemes() {
		schemes = append(schemes, cobra.CompletionWithDesc(s.Prefix(), s.Doc))
	}
	return schemes, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}
