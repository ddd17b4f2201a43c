package main

import (
	"context"
	"slices"

	"github.com/sniblock/snib/cmd/sniblab/internal/peers"
	"github.com/sniblock/snib/cmd/sniblab/internal/trial"
)

func toTargets(all []peers.Peer) []trial.Target {
	var targets []trial.Target
	for _, p := range all {
		targets = append(targets, p.Target())
	}
	return targets
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
func (l *runCommand) chosenPeers(name string) ([]trial.Target, error) {
	named := peers.Named(name)
	if named[0].Name == name {
		return toTargets(named), nil
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
	return toTargets(named), nil
}

// installPeers gives the peers among targets their commands.
func (l *runCommand) installPeers(ctx context.Context, chosen []trial.Target) error {
	for i, c := range chosen {
		if c.Command != nil {
			continue
		}
		p := peers.Named(c.Name)[0]
		command, err := p.Install(ctx, func() { l.infof("installing %s, which takes up to some minutes", p.Target().Title) })
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
