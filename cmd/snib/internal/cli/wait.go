package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

func (a *app) newWaitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "wait NAME",
		Short:             "wait until nobody holds a lock, without taking it",
		Example:           waitExamples,
		Long:              waitNotes,
		Args:              oneName,
		ValidArgsFunction: a.completeName,
	}
	maxWait := addDuration(cmd, "wait", "w", "give up after this long and exit 75; 0 asks once (default: never)", 0, 0)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return a.withStore(backend.Look, func(ctx context.Context, s *backend.Store) error {
			return a.waitFree(ctx, s, args[0], maxWait)
		})
	}
	return cmd
}

// waitFree polls the store until the lock is free. To be notified, it would have to queue for
// the lock and take it, which would delay those who need it.
func (a *app) waitFree(ctx context.Context, s *backend.Store, name string, maxWait *duration) error {
	const minPause, maxPause = 10 * time.Millisecond, 500 * time.Millisecond
	if err := refuseNestedInEnv(ctx, s, name); err != nil {
		return err
	}
	began := time.Now()
	for pause := minPause; ; pause = min(pause*2, maxPause) {
		st, err := s.Status(ctx, name)
		if err != nil {
			return err
		}
		var grace time.Duration
		if len(st.Holders) > 0 && isUnbreakable(st.Holders[0]) && st.Holders[0].Left == driver.NoExpiry {
			return failf(exitConfig, "%s is in use as another kind of lock: it is %s, without an end; choose another name",
				printable(name), holderName(st.Holders[0]))
		}
		if len(st.Holders) == 0 {
			if grace, err = s.Grace(ctx, name, defaultTTLFor(s.Info())); err != nil || grace <= 0 {
				return err
			}
		}
		if maxWait.set {
			left := maxWait.value - time.Since(began)
			if left <= 0 && grace > 0 {
				return withheldError(name, grace)
			}
			if left <= 0 {
				return a.taken(exitBusy, fmt.Sprintf("%s is taken: %s", printable(name), heldBy(st.Holders[0])))
			}
			pause = min(pause, left)
		}
		time.Sleep(pause)
	}
}

// defaultTTLFor returns the default of --ttl, or the nearest TTL that the store supports.
func defaultTTLFor(info driver.Info) time.Duration {
	ttl := max(defaultTTL, info.MinTTL, info.SessionTTL)
	if info.MaxTTL > 0 {
		ttl = min(ttl, info.MaxTTL)
	}
	return ttl
}
