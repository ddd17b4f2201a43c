package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

func (a *app) newCompletionCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "completion bash|zsh|fish|powershell",
		Short:     "print a script that completes commands, flags and the names of locks",
		Example:   completionExamples,
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		Args:      takes(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := outputWriter{a.out}
			switch root := cmd.Root(); args[0] {
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
	found := make(chan []string, 1)
	go func() {
		var names []string
		// A shell has no use for an error.
		_ = a.withStore(func(ctx context.Context, s *backend.Store) error {
			all, err := list(ctx, s, prefix, false)
			for _, st := range all {
				if shellQuote(st.Name) == st.Name { // shells insert other names unquoted
					names = append(names, cobra.CompletionWithDesc(st.Name, describeLock(st)))
				}
			}
			return err
		})
		found <- names
	}()
	select {
	case names := <-found:
		return names, cobra.ShellCompDirectiveNoFileComp
	case <-time.After(feedbackInterval): // the user waits for the shell to react
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeURL completes the schemes of URLs.
func (a *app) completeURL(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var schemes []string
	if c, err := a.loadConfig(); err == nil {
		for _, name := range slices.Sorted(maps.Keys(c.Stores)) {
			schemes = append(schemes, cobra.CompletionWithDesc(name, "a store of "+c.path))
		}
	}
	for _, s := range backend.Schemes() {
		schemes = append(schemes, cobra.CompletionWithDesc(s.Prefix(), s.Doc))
	}
	return schemes, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

// describeLock describes a lock for the completion of its name.
func describeLock(st driver.Status) string {
	switch n := len(st.Holders); n {
	case 0:
		return plural(len(st.Waiters), "waiter")
	case 1:
		h := st.Holders[0]
		return fmt.Sprintf("held by %s, %s left", holderName(h), leaseLeft(h))
	default:
		return fmt.Sprintf("held by %s and %d more", holderName(st.Holders[0]), n-1)
	}
}
