package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/sniblab/internal/judge"
	"github.com/sniblock/snib/cmd/sniblab/internal/peers"
	"github.com/sniblock/snib/cmd/sniblab/internal/servers"
	"github.com/sniblock/snib/cmd/sniblab/internal/trial"
)

func newListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "list targets, controls, stores, faults and verdicts", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), listAll())
			return printed(err)
		},
	}
}

// newTargetCommand returns the command that runs a target that comes with the lab.
func newTargetCommand() *cobra.Command {
	return &cobra.Command{
		Use: "target NAME", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return serveTarget(args[0]) },
	}
}

// listAll describes targets and faults.
func listAll() string {
	var b strings.Builder
	add := func(title string, all []trial.Target) {
		b.WriteString(title + "\n")
		for _, c := range all {
			text := c.Title + ". " + c.Defect
			if c.Source != "" {
				text += " See " + c.Source + "."
			}
			if err := c.Store.Missing(); err != nil {
				text += fmt.Sprintf(" Can't be run here: %s.", message(err))
			}
			writeTerm(&b, "  "+c.Name, text, 20)
		}
		b.WriteString("\n")
	}
	add("Targets ("+ownGroup+")", own())
	b.WriteString(listPeers())
	add("Controls: broken patterns, which each run must reject first", controls())
	b.WriteString("Stores\n")
	for _, kind := range trial.Stores() {
		writeTerm(&b, "  "+string(kind), kind.About(), 20)
	}
	b.WriteString("\nFaults\n")
	for _, f := range servers.Faults() {
		text := f.About
		if f.Needs != "" {
			text += " (needs " + string(f.Needs) + ")"
		}
		writeTerm(&b, "  "+f.Name, text, 20)
	}
	b.WriteString("\nVerdicts\n")
	for _, e := range judge.Verdicts() {
		writeTerm(&b, "  "+string(e.Verdict), e.Short+". "+e.Long, 20)
	}
	return b.String()
}

// listPeers describes the targets that lock with libraries of others.
func listPeers() string {
	var b strings.Builder
	store := trial.StoreKind("")
	for _, p := range peers.All() {
		if p.Store != store {
			store = p.Store
			fmt.Fprintf(&b, "Libraries of others (%s), on %s (%[1]s-%[2]s)\n", peers.Group, store)
		}
		text := p.Target().Title + ". Settings: " + p.Settings + "; held: " + p.Held + "."
		if err := missingFor(p); err != nil {
			text += fmt.Sprintf(" Can't be run here: %s.", message(err))
		}
		writeTerm(&b, "  "+p.Name, text, 20)
	}
	b.WriteString("\n")
	return b.String()
}
