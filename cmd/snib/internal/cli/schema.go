package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
)

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "schema KIND",
		Short:     "print the statements that make the tables in a database",
		Long:      "Print the statements that make the tables in a database, for those who make tables by migrations.\nElse they are made when they are first needed.\nKIND is " + strings.Join(backend.Schemas(), " or ") + ".",
		Example:   schemaExamples,
		ValidArgs: backend.Schemas(),
		Args:      cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := backend.Schema(args[0])
			if err != nil {
				return err
			}
			return a.printf("%s", text)
		},
	}
}
