package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sniblock/snib/lab/arena"
	"github.com/sniblock/snib/lab/peers"
)

// listPeers describes the contestants that lock with libraries of others.
func listPeers() string {
	var b strings.Builder
	store := arena.StoreKind("")
	for _, p := range peers.All() {
		if p.Store != store {
			store = p.Store
			fmt.Fprintf(&b, "Libraries of others (%s), on %s (%[1]s-%[2]s)\n", peers.Group, store)
		}
		text := p.Contestant().Title + ". Settings: " + p.Settings + "."
		if err := missingFor(p); err != nil {
			text += fmt.Sprintf(" Can't be run here: %s.", message(err))
		}
		writeTerm(&b, "  "+p.Name, text, 20)
	}
	b.WriteString("\n")
	return b.String()
}

// missingFor returns why a peer can't be run on this machine, or nil.
func missingFor(p peers.Peer) error {
	if err := p.Store.Missing(); err != nil {
		return err
	}
	return p.Missing()
}

// chosenPeers returns the peers that a name stands for. Those of a group that can't be run here are
// left out, and a message says so.
func (l *labCommand) chosenPeers(name string) ([]arena.Contestant, error) {
	named := peers.Named(name)
	if named[0].Name == name {
		return convert(named, peers.Peer.Contestant), nil
	}
	var missing []string
	named = slices.DeleteFunc(named, func(p peers.Peer) bool {
		err := missingFor(p)
		if err != nil {
			missing = append(missing, p.Name+" is left out: "+message(err))
		}
		return err != nil
	})
	if len(named) == 0 {
		return nil, failf(exitUnavailable, "nothing of the group %s can be run here: %s", name, missing[0])
	}
	for _, text := range missing {
		l.infof("%s", text)
	}
	return convert(named, peers.Peer.Contestant), nil
}

// installPeers gives the peers among contestants their commands.
func (l *labCommand) installPeers(ctx context.Context, chosen []arena.Contestant) error {
	for i, c := range chosen {
		if c.Command != nil {
			continue
		}
		p := peers.Named(c.Name)[0]
		command, err := p.Install(ctx, func() { l.infof("installing %s, which takes up to some minutes", p.Contestant().Title) })
		switch {
		case ctx.Err() != nil:
			return silentExit(exitSignal + 2) // SIGINT
		case err != nil:
			return failf(exitUnavailable, "%w", err)
		}
		chosen[i].Command = command
	}
	return nil
}
