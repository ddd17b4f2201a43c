package cli

import (
	"github.com/spf13/cobra"

	"github.com/sniblock/snib/driver"
)

// newHoldCommand returns a command that refuses, whatever its arguments are. The shells that call
// it by $$, such as Git Bash, have process ids of their own, which are not those of Windows. And
// nothing asks a script to end whose lock is lost.
func (a *app) newHoldCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "hold",
		Short:              "hold a lock for the rest of a script (not on Windows)",
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return usagef("there is no snib hold on Windows; run the script with snib run, or take a lock for a fixed time with snib lock")
		},
	}
}

// hasKeeper and endKeeper return false: only snib hold starts keepers.
func hasKeeper(string) bool { return false }

func endKeeper(driver.Status, string) bool { return false }
