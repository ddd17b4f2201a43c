package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

func (a *app) waitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "wait NAME",
		Short:             "wait until nobody holds a lock, without taking it",
		Example:           waitExamples,
		Args:              oneName,
		ValidArgsFunction: a.completeName,
	}
	bound := addDuration(cmd, "wait", "w", "give up after this long and exit 75; 0 asks once (default: never)", 0, 0)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return a.view(func(ctx context.Context, s *backend.Store) error {
			return a.waitFree(ctx, s, args[0], bound)
		})
	}
	return cmd
}

// waitFree asks again and again. To be told, one would have to stand in the queue and take the lock, which would get in
// the way of those who need it.
func (a *app) waitFree(ctx context.Context, s *backend.Store, name string, bound *duration) error {
	const least, most = 10 * time.Millisecond, 500 * time.Millisecond
	if err := checkAround(ctx, s, name); err != nil {
		return err
	}
	began := time.Now()
	for pause := least; ; pause = min(pause*2, most) {
		st, err := status(ctx, s, name)
		if err != nil {
			return err
		}
		var grace time.Duration
		if len(st.Holders) == 0 {
			if grace, err = s.Grace(ctx, driver.Request{Name: name, TTL: fitTTL(s.Info())}); err != nil || grace <= 0 {
				return err
			}
		}
		if bound.set {
			left := bound.value - time.Since(began)
			if left <= 0 && grace > 0 {
				return fail(exitUnavailable, "%s may be taken: %s (failover-grace)", printable(name), withheld(grace))
			}
			if left <= 0 {
				return a.stillTaken(name, st.Holders[0])
			}
			pause = min(pause, left)
		}
		time.Sleep(pause)
	}
}

// fitTTL is the default of --ttl, or the nearest that a store can do.
func fitTTL(info driver.Info) time.Duration {
	ttl := max(defaultTTL, info.MinTTL)
	if info.MaxTTL > 0 {
		ttl = min(ttl, info.MaxTTL)
	}
	return ttl
}

// stillTaken is the error for a lock that somebody holds.
func (a *app) stillTaken(name string, h driver.Holding) error {
	if a.quiet {
		return silent(exitBusy)
	}
	return fail(exitBusy, "%s is taken: %s", printable(name), heldBy(h))
}
