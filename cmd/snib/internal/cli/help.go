package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
)

// usageLine returns the synopsis of a command.
func usageLine(cmd *cobra.Command) string {
	if cmd.HasParent() {
		return cmd.Root().Name() + " " + cmd.Use
	}
	return cmd.Use
}

func (a *app) newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "print the help of the program, or of one command",
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return a.unknownCommand(cmd.Root(), args)
			}
			return target.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, c := range cmd.Root().Commands() {
				if !c.Hidden {
					names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// help prints the help of cmd. Its signature is that of a cobra help function, which can't fail.
func (a *app) help(cmd *cobra.Command, _ []string) {
	var b strings.Builder
	writeTerm(&b, cmd.CommandPath()+":", cmd.Short, len(cmd.CommandPath()+": "))
	if !cmd.HasParent() {
		writeSection(&b, "Examples", rootExamples)
		writeOverview(&b, cmd)
		_ = a.printf("%s", b.String())
		return
	}
	writeSection(&b, "Examples", cmd.Example)
	writeSection(&b, "Usage", "  "+usageLine(cmd))
	writeSection(&b, "Flags", formatFlags(ownFlags(cmd)))
	writeSection(&b, "Flags of all commands", formatFlags(cmd.InheritedFlags()))
	writeSection(&b, "Notes", cmd.Long)
	if cmd.Name() == "run" {
		writeReference(&b)
	}
	_ = a.printf("%s", b.String())
}

// groups are the commands by what they are for, as summary shows them. Those that are in no group
// come last.
var groups = []struct {
	title    string
	commands []string
}{
	{"lock", []string{"run", "hold", "lock", "unlock", "fence"}},
	{"look", []string{"ls", "show", "wait", "watch", "export"}},
	{"repair", []string{"release", "leaks", "redis", "redlock"}},
	{"stores", []string{"doctor", "serve", "bench", "schema", "demo", "lab"}},
}

// summary returns what snib prints without arguments: a screen of 24 lines at most.
func summary(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("snib runs programs under locks, and shows and frees the locks. A lock is in a\n" +
		"SQLite file, for the processes of one host, or on a server, for many hosts.\n")
	writeSection(&b, "Examples", summaryExamples)
	var list strings.Builder
	rest := convert(root.Commands(), (*cobra.Command).Name)
	for _, g := range groups {
		writeTerm(&list, "  "+g.title, strings.Join(g.commands, " "), 14)
		rest = slices.DeleteFunc(rest, func(name string) bool { return slices.Contains(g.commands, name) })
	}
	writeTerm(&list, "  others", strings.Join(rest, " "), 14)
	writeSection(&b, "Commands", list.String())
	writeSection(&b, "More", "  snib help COMMAND    all about a command, examples first\n"+
		"  snib help            all commands, flags, stores and exit codes")
	return b.String()
}

// writeOverview writes all commands and flags on one page.
func writeOverview(b *strings.Builder, root *cobra.Command) {
	var list strings.Builder
	for _, c := range root.Commands() {
		if !c.Hidden {
			writeTerm(&list, "  "+c.Name(), c.Short, 14)
		}
	}
	writeSection(b, "Commands (details: snib help COMMAND)", list.String())
	for _, c := range root.Commands() {
		if own := formatFlags(ownFlags(c)); own != "" && !c.Hidden {
			writeSection(b, usageLine(c), own)
		}
	}
	writeSection(b, usageLine(root), formatFlags(ownFlags(root)))
	writeSection(b, "Flags of all commands", formatFlags(root.PersistentFlags()))
	writeReference(b)
}

// writeReference writes what all commands have in common: stores, environment and exit codes.
func writeReference(b *strings.Builder) {
	var stores strings.Builder
	for _, s := range backend.Schemes() {
		if s.Doc != "" {
			writeTerm(&stores, "  "+s.Syntax, s.Doc, 16)
		}
	}
	writeSection(b, "Stores (--url, or $"+urlVar+")", stores.String()+storeNotes)
	var parameters strings.Builder
	for _, p := range backend.Parameters() {
		writeTerm(&parameters, "  "+p.Syntax, p.Stores()+": "+p.Doc, 26)
	}
	writeSection(b, "Parameters of URLs (redis://HOST/DB?NAME=VALUE&NAME=VALUE)", parameters.String()+parameterNotes)
	writeSection(b, "Environment of the command", environmentNotes)
	writeSection(b, "Exit codes", exitNotes)
}

func writeSection(b *strings.Builder, title, text string) {
	if text = strings.TrimRight(text, "\n"); text != "" {
		fmt.Fprintf(b, "\n%s\n%s\n", title, text)
	}
}

// formatFlags lists flags as "-w, --wait DURATION  usage". It omits the help flag, which the
// reader has found already.
func formatFlags(set *pflag.FlagSet) string {
	var b strings.Builder
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		head := "      --" + f.Name
		if f.Shorthand != "" {
			head = "  -" + f.Shorthand + ", --" + f.Name
		}
		kind, text := pflag.UnquoteUsage(f)
		switch {
		case kind != "" && f.NoOptDefVal != "":
			head += "[=" + kind + "]"
		case kind != "":
			head += " " + kind
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" {
			text += " (default " + f.DefValue + ")"
		}
		writeTerm(&b, head, text, 30)
	})
	return b.String()
}

// ownFlags returns the flags of cmd itself, in the order in which they were added.
func ownFlags(cmd *cobra.Command) *pflag.FlagSet {
	own := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	own.SortFlags = cmd.Flags().SortFlags
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if cmd.Root().PersistentFlags().Lookup(f.Name) == nil {
			own.AddFlag(f)
		}
	})
	return own
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
