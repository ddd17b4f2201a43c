package cli

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

// A releaseCommand is one call of "snib release".
type releaseCommand struct {
	*app
	id         string
	reason     string
	force, yes bool
}

func (a *app) newReleaseCommand() *cobra.Command {
	r := &releaseCommand{app: a}
	cmd := &cobra.Command{
		Use:               "release NAME --id ID | --force",
		Short:             "take a lock away from its holder",
		Example:           releaseExamples,
		Long:              releaseNotes,
		Args:              oneName,
		ValidArgsFunction: a.completeName,
	}
	f := cmd.Flags()
	f.StringVar(&r.id, "id", "", "take it from the hold with this `ID`, or with this digest of it, which snib show prints; - for one line of standard input")
	f.BoolVar(&r.force, "force", false, "take it from any holder")
	f.StringVar(&r.reason, "reason", "", "a `TEXT` for the audit line: why the lock is taken away")
	f.BoolVarP(&r.yes, "yes", "y", false, "don't ask")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if r.force == (r.id != "") {
			return usagef("no holder was named: give --id ID, or --force for any holder")
		}
		if r.id == "-" && !r.yes {
			return usagef("--id - reads standard input, so snib can't ask there; give --yes")
		}
		var err error
		if r.id, err = readID(r.id); err != nil {
			return err
		}
		if err := checkYes(r.yes); err != nil {
			return err
		}
		return a.withStore(backend.Look, func(ctx context.Context, s *backend.Store) error {
			return r.release(ctx, s, args[0])
		})
	}
	return cmd
}

func (r *releaseCommand) release(ctx context.Context, s *backend.Store, name string) error {
	st, err := s.Status(ctx, name)
	if err != nil {
		return err
	}
	holds := st.Holders
	if r.id != "" {
		holds = nil
		if h := findHold(st, r.id); h != nil {
			holds = []driver.Holding{*h}
		}
	}
	if len(holds) == 0 {
		if r.id != "" { // which may be somebody's secret
			hint := ""
			if slices.ContainsFunc(st.Holders, isHidden) {
				hint = ", or the lock service shows no ids to you: that needs the verb admin"
			}
			return failf(exitNotHeld, "%s is not held under this id%s", printable(name), hint)
		}
		return failf(exitNotHeld, "%s is not held", printable(name))
	}
	switch {
	case isUnbreakable(holds[0]):
		return failf(exitConfig, "%s may not be a lock: it is %s, which snib does not delete", printable(name), holderName(holds[0]))
	case !r.yes:
		if err := r.confirmRelease(name, holds); err != nil {
			return err
		}
	case r.force && isForeign(holds[0]) && holds[0].Left == driver.NoExpiry:
		return usagef("%s may not be a lock: snib did not write it, and it has no end; to delete it, give its value, or its digest, as --id, "+
			"or omit --yes", printable(name))
	}
	broken, err := r.breakHolds(ctx, s, name, holds)
	if err != nil {
		return err
	}
	if broken < len(holds) {
		return failf(exitBusy, "the holder of %s changed meanwhile: %s of %d released; see snib show",
			printable(name), plural(broken, "hold"), len(holds))
	}
	return nil
}

// breakHolds breaks the holds of a lock, logs that, and returns how many had not ended before.
func (r *releaseCommand) breakHolds(ctx context.Context, s *backend.Store, name string,
	holds []driver.Holding) (broken int, err error) {
	for _, h := range holds {
		err := s.Break(ctx, name, h.ID)
		r.auditBreak(s, name, h, r.reason, err)
		switch {
		case err == nil:
			broken++
		case !errors.Is(err, snib.ErrLost): // otherwise it had ended before
			return broken, err
		}
	}
	return broken, nil
}

// confirmRelease shows the holds, and asks the user to type the lock's name.
func (r *releaseCommand) confirmRelease(name string, holds []driver.Holding) error {
	for _, h := range holds {
		r.messagef("%s is %s, and %s", printable(name), heldBy(h), describeEnd(h))
		if isForeign(h) {
			r.messagef("snib did not write it: to release it means to delete it from the store, whether it is a lock or not")
		}
	}
	r.messagef("the holder may still be at work; another can then start beside it")
	// A name that can't be typed may be entered in its printed form.
	return r.ask("type the name of the lock to release it: ", name, printable(name))
}

// auditBreak logs who broke a hold, unless err says that nothing was done. It has a digest of the
// id, as the marks of package fence do, because the id itself is enough to release the lock.
func (a *app) auditBreak(s *backend.Store, name string, h driver.Holding, reason string, err error) {
	// Where some nodes of Redlock deny it and some don't answer, the error says unavailable, too.
	isDenied := backend.Denied(err) && !errors.Is(err, snib.ErrUnavailable)
	if isDenied || errors.Is(err, snib.ErrLost) || errors.Is(err, snib.ErrKind) {
		return
	}
	attrs := []slog.Attr{
		slog.String("lock", name), slog.Uint64("fence", h.Token), slog.String("id_digest", idDigest(h)), slog.String("holder", holderName(h)),
	}
	if h.Held != 0 { // otherwise it is unknown
		attrs = append(attrs, slog.Duration("held", h.Held))
	}
	if reason != "" {
		attrs = append(attrs, slog.String("reason", reason))
	}
	a.audit(s, "hold broken by force", "broken", err, attrs...)
}
