package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
)

// groups are the commands by what they are for, as the help lists them.
var groups = []struct{ title, commands string }{
	{"Lock:", "run hold lock unlock fence"},
	{"Look:", "ls show wait watch export"},
	{"Repair:", "release leaks redis redlock"},
	{"Stores:", "doctor serve schema"},
}

// storesTopic is the topic of the help that lists the URLs of stores.
const storesTopic = "stores"

// setUpHelp prepares the help, which cobra prints by code. Templates of our own would link package
// text/template, which doubles the size of the binary. Texts are made when they are printed, so
// that other calls start sooner.
func (a *app) setUpHelp(root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range root.Commands() {
			if slices.Contains(strings.Fields(g.commands), c.Name()) {
				c.GroupID = g.title
			}
		}
	}
	root.AddCommand( // without code, they have only a help
		&cobra.Command{Use: "exit-codes", Short: "what the exit codes mean", Long: exitNotes},
		&cobra.Command{Use: storesTopic, Short: "the URLs of stores, and their parameters"},
		&cobra.Command{Use: "environment", Short: "what the command under snib run sees", Long: environmentNotes},
	)
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		if c.Name() == storesTopic {
			c.Long = storesText()
		}
		if c != root {
			c.Long, c.Example = unindent(c.Long), strings.TrimRight(c.Example, "\n")
			if c.Runnable() {
				c.Long = strings.TrimSpace(c.CommandPath() + ": " + c.Short + "\n\n" + c.Long)
			}
		}
		help(c, args)
	})
	root.SetHelpCommand(&cobra.Command{
		Use: "help [COMMAND]", Short: "print the help of the program, of one command, or on a topic",
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if target != cmd.Root() && len(rest) > 0 && (len(rest) > 1 || !slices.Contains(target.ValidArgs, rest[0])) {
				return usagef("there is no command %s %q; see snib help %[1]s", target.Name(), strings.Join(rest, " "))
			}
			if err != nil || target == cmd.Root() && len(rest) > 0 {
				return a.unknownCommand(cmd.Root(), args)
			}
			target.InitDefaultHelpFlag()
			return target.Help()
		},
	})
	root.InitDefaultHelpFlag()
}

func unindent(text string) string {
	return strings.TrimPrefix(strings.ReplaceAll("\n"+text, "\n  ", "\n"), "\n")
}

// storesText lists the URLs of stores and their parameters.
func storesText() string {
	var b strings.Builder
	for _, s := range backend.Schemes() {
		if s.Doc != "" {
			writeTerm(&b, "  "+s.Syntax, s.Doc, 16)
		}
	}
	b.WriteString(storeNotes + "\n  Parameters, as in redis://HOST/DB?NAME=VALUE&NAME=VALUE (those of SQL\n  databases are below):\n\n")
	for _, p := range backend.Parameters() {
		writeTerm(&b, "  "+p.Syntax, p.Stores()+": "+p.Doc, 26)
	}
	return b.String() + "\n" + parameterNotes
}

// writeTerm writes a term and its meaning in two columns. The second begins at column.
func writeTerm(b *strings.Builder, term, text string, column int) {
	const width = 79
	line := fmt.Sprintf("%-*s", column, term)
	if len(term) >= column {
		fmt.Fprintln(b, term)
		line = strings.Repeat(" ", column)
	}
	for _, word := range strings.Fields(text) {
		if len(line) > column && len(line)+1+len(word) > width {
			fmt.Fprintln(b, line)
			line = strings.Repeat(" ", column)
		}
		if len(line) > column {
			line += " "
		}
		line += word
	}
	fmt.Fprintln(b, line)
}
