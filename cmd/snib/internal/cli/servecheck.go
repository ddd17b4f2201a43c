package cli

import (
	"cmp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/serve"
	"github.com/sniblock/snib/serve/access"
)

func (a *app) newServeCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "check POLICY",
		Short:   "check a policy file, and show who may do what",
		Example: serveCheckExamples,
		Long:    serveCheckNotes,
		Args:    takes(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			policy, err := access.LoadPolicy(args[0])
			if err != nil {
				return failf(exitConfig, "%v", err)
			}
			return a.printf("%s", rightsTable(policy.All(), time.Now()))
		},
	}
}

// rightsTable returns a table of rights, for people.
func rightsTable(all []access.Rights, now time.Time) string {
	rows := [][]string{{"WHO", "MAY", "NAMESPACE", "LOCKS", "UNTIL"}}
	for _, r := range all {
		verbs := convert(r.Verbs, func(v serve.Verb) string { return string(v) })
		rows = append(rows, []string{
			printable(r.Name), strings.Join(verbs, " "), cmp.Or(printable(r.Namespace), "-"), locksOf(r), untilOf(r, now),
		})
	}
	return columns(rows)
}

// locksOf describes the locks that rights are about.
func locksOf(r access.Rights) string {
	if r.Covers("") {
		return "all"
	}
	return strings.Join(convert(r.Prefixes, func(p string) string { return printable(p) + "*" }), " ")
}

func untilOf(r access.Rights, now time.Time) string {
	switch {
	case r.Until.IsZero():
		return "-"
	case !now.Before(r.Until):
		return "ended " + r.Until.UTC().Format(time.RFC3339)
	}
	return r.Until.UTC().Format(time.RFC3339)
}

const serveCheckExamples = `  snib serve check policy.toml && kill -HUP "$(pidof snib)"
`

const serveCheckNotes = `  Run it before you change the policy of a service, and read the table: nobody
  may do anything that is not in it. If the file is bad, snib says where, and
  exits with 78.
`
