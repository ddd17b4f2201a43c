package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
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

// version prints the version and the commit of this program, as far as the go command recorded
// them.
func (a *app) version() error {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				version += fmt.Sprintf(" (%.12s)", s.Value)
			}
		}
	}
	return a.printf("snib %s, %s, %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
