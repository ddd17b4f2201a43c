package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) newVersionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "print the version of this program",
		Example: versionExamples,
		Args:    noArgs,
	}
	output := addOutput(cmd, "table", "json", "name")
	cmd.RunE = func(*cobra.Command, []string) error { return a.version(output.value) }
	return cmd
}

// version prints the version of this program. output is the value of -o.
func (a *app) version(output string) error {
	version, commit := buildVersion()
	return a.print(output, result{
		document: func() any {
			return versionJSON{"snib.version/1", version, commit, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
		},
		names: func() []string { return []string{version} },
		text: func() string {
			full := version
			if commit != "" {
				full += " (" + commit + ")"
			}
			return fmt.Sprintf("snib %s, %s, %s/%s\n", full, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		},
	})
}

// buildVersion returns the version and the commit of this build, as far as the
// go command recorded them.
func buildVersion() (version, commit string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown", ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			commit = s.Value[:min(12, len(s.Value))]
		}
	}
	return info.Main.Version, commit
}
