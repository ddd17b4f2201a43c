package cli

import (
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
	switch output {
	case "json":
		return a.printJSON(struct {
			Schema  string `json:"schema"`
			Version string `json:"version"`
			Commit  string `json:"commit,omitempty"`
			Go      string `json:"go"`
			System  string `json:"system"`
		}{"snib.version/1", version, commit, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH})
	case "name":
		return a.printf("%s\n", version)
	}
	if commit != "" {
		version += " (" + commit + ")"
	}
	return a.printf("snib %s, %s, %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
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
