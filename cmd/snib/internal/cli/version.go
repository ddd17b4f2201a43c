package cli

import (
	"runtime"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/remotelock/wire"
)

func (a *app) newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "print the version of this program",
		Example: "  snib version",
		Args:    takes(cobra.NoArgs),
		RunE:    func(*cobra.Command, []string) error { return a.version() },
	}
}

// version prints the version of this program, and for what it was built.
func (a *app) version() error {
	return a.printf("snib %s, %s, %s/%s\n", wire.ProgramVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
