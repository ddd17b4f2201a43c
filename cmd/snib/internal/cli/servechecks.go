package cli

import (
	"context"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/remotelock/wire"
)

// serveChecks are what the commands doctor and leaks find in the store of a service.
type serveChecks struct {
	app   *app
	store *backend.Store
}

// doctor examines the store.
func (c serveChecks) doctor(ctx context.Context) ([]wire.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	found, _, err := diagnose(ctx, c.store, nil) // that no lock could be taken is among the findings
	return convert(found, func(f backend.Finding) wire.Finding {
		return wire.Finding{Check: f.Check, Verdict: string(f.Verdict), Value: f.Value, Advice: f.Advice}
	}), err
}

// leaks searches the store. The clients of a service run on hosts of their own, or in containers,
// so it does not look for their processes on this one.
func (c serveChecks) leaks(ctx context.Context) ([]wire.Leak, error) {
	search := newLeakSearch(c.app)
	search.host = ""
	found, err := search.find(ctx, c.store, "")
	return convert(found, func(k leak) wire.Leak {
		return wire.Leak{Kind: k.kind, Name: k.name, Problem: k.problem, Library: k.library, Unsure: k.unsure}
	}), err
}
