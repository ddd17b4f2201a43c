package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
)

// usageLine is how a command is called.
func usageLine(cmd *cobra.Command) string {
	if cmd.HasParent() {
		return cmd.Root().Name() + " " + cmd.Use
	}
	return cmd.Use
}

func (a *app) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "tell all about the program, or about one command",
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

// help prints the help of cmd. It is a cobra help function, which can't fail.
func (a *app) help(cmd *cobra.Command, _ []string) {
	var b strings.Builder
	wrap(&b, cmd.CommandPath()+":", cmd.Short, len(cmd.CommandPath()+": "))
	if !cmd.HasParent() {
		section(&b, "Examples", rootExamples)
		overview(&b, cmd)
		_ = a.printf("%s", b.String())
		return
	}
	section(&b, "Examples", cmd.Example)
	section(&b, "Usage", "  "+usageLine(cmd))
	section(&b, "Flags", flags(ownFlags(cmd)))
	section(&b, "Flags of all commands", flags(cmd.InheritedFlags()))
	section(&b, "Notes", cmd.Long)
	if cmd.Name() == "run" {
		tables(&b)
	}
	_ = a.printf("%s", b.String())
}

// overview is the whole surface on one page.
func overview(b *strings.Builder, root *cobra.Command) {
	var list strings.Builder
	for _, c := range root.Commands() {
		if !c.Hidden {
			wrap(&list, "  "+c.Name(), c.Short, 14)
		}
	}
	section(b, "Commands (snib help COMMAND tells more)", list.String())
	for _, c := range root.Commands() {
		if own := flags(ownFlags(c)); own != "" && !c.Hidden {
			section(b, usageLine(c), own)
		}
	}
	section(b, usageLine(root), flags(ownFlags(root)))
	section(b, "Flags of all commands", flags(root.PersistentFlags()))
	tables(b)
}

// tables are what all commands have in common: stores, environment, exit codes.
func tables(b *strings.Builder) {
	var stores strings.Builder
	for _, s := range backend.Schemes() {
		if s.Doc != "" {
			wrap(&stores, "  "+s.Syntax, s.Doc, 16)
		}
	}
	section(b, "Stores (--url, or $"+urlVar+")", stores.String()+storeNotes)
	section(b, "Parameters of Redis (redis://HOST/DB?NAME=VALUE&NAME=VALUE)", parameters(backend.RedisParameters())+parameterNotes)
	section(b, "Parameters of ZooKeeper (zk://HOST/ROOT?NAME=VALUE&NAME=VALUE)", parameters(backend.ZooKeeperParameters()))
	section(b, "What the command sees", environmentNotes)
	section(b, "Exit codes", exitNotes)
}

func parameters(all []backend.Parameter) string {
	var b strings.Builder
	for _, p := range all {
		wrap(&b, "  "+p.Syntax, p.Doc, 26)
	}
	return b.String()
}

func section(b *strings.Builder, title, text string) {
	if text = strings.TrimRight(text, "\n"); text != "" {
		fmt.Fprintf(b, "\n%s\n%s\n", title, text)
	}
}

// flags lists flags as "-w, --wait DURATION  usage". The one for help is left out: whoever reads this has found it.
func flags(set *pflag.FlagSet) string {
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
		if kind != "" {
			head += " " + kind
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" {
			text += " (default " + f.DefValue + ")"
		}
		wrap(&b, head, text, 30)
	})
	return b.String()
}

// ownFlags are the flags of cmd itself, in the order in which they were added.
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

// wrap prints a term and what it means in two columns, of which the second begins at column.
func wrap(b *strings.Builder, term, text string, column int) {
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
