package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
)

func (a *app) newSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "schema KIND",
		Short:     "print the statements that make the tables in a database",
		Long:      schemaNotes + "  KIND is " + strings.Join(backend.Schemas(), " or ") + ".\n",
		Example:   schemaExamples,
		ValidArgs: backend.Schemas(),
		Args:      takes(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := backend.Schema(args[0])
			if err != nil {
				return err
			}
			return a.printf("%s", text)
		},
	}
}
