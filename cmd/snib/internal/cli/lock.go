package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

// ownerVar is where "snib unlock" finds the owner that "snib lock" printed.
const ownerVar = "SNIB_OWNER"

// A locking is one "snib lock".
type locking struct {
	*app
	ttl, wait *duration
	owner     string
	try       bool
	output    *choice
}

func (a *app) lockCommand() *cobra.Command {
	l := &locking{app: a}
	cmd := &cobra.Command{
		Use:               "lock NAME --ttl DURATION",
		Short:             "take a lock and leave it taken, for scripts",
		Example:           lockExamples,
		Long:              lockNotes,
		Args:              oneName,
		RunE:              func(cmd *cobra.Command, args []string) error { return l.lock(cmd.Context(), args[0]) },
		ValidArgsFunction: a.completeName,
	}
	f := cmd.Flags()
	f.SortFlags = false
	l.ttl = addDuration(cmd, "ttl", "", "the lock ends after this long; required, because nobody renews it", 0, leastTTL)
	l.wait = addDuration(cmd, "wait", "w", "wait at most this long for the lock (default: for ever)", 0, 0)
	f.BoolVarP(&l.try, "try", "n", false, "don't wait: if the lock is taken, exit 75")
	f.StringVar(&l.owner, "owner", "",
		"who takes it, any `ID`; the same one gets the same lock again (default: a new random id)")
	l.output = addOutput(cmd, "shell", "json", "table", "name")
	return cmd
}

func (l *locking) lock(ctx context.Context, name string) error {
	switch {
	case !l.ttl.set:
		return usagef("no --ttl was given: nobody renews this lock, so say how long it may last, such as --ttl 10m")
	case l.try && l.wait.set:
		return usagef("--try and --wait exclude each other: give one of them")
	case len(l.owner) > driver.MaxName:
		return usagef("--owner has %d bytes; at most %d are allowed", len(l.owner), driver.MaxName)
	}
	if l.owner == "" {
		l.owner = rand.Text()
	}
	s, err := l.open(true)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // the lease is meant to outlive us
	if s.Private() {
		return fail(exitConfig, "%s ends with this process, and the lock with it; choose another with --url", s.URL)
	}
	if err := ttlFits(s.Info(), l.ttl.value); err != nil {
		return err
	}
	if err := checkAround(ctx, s, name); err != nil {
		return err
	}
	lease, err := l.acquire(ctx, s, name)
	if errors.Is(err, snib.ErrHeld) {
		text, failed := refused(err, l.wait.set, s, l.request(name))
		switch {
		case failed != nil:
			return failed
		case l.quiet:
			return silent(exitBusy)
		}
		return fail(exitBusy, "%s", text)
	}
	if errors.Is(err, snib.ErrInvalid) { // as in run
		return fail(exitConfig, "%s: %s", s.URL, message(err))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.URL, err)
	}
	if err := l.print(name, lease.Grant().Token); err != nil {
		_ = lease.Release(context.WithoutCancel(ctx)) // nobody knows of it
		return err
	}
	return nil
}

func (l *locking) acquire(ctx context.Context, s *backend.Store, name string) (driver.Lease, error) {
	req := l.request(name)
	if l.wait.set && !req.NoWait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, l.wait.value, snib.ErrHeld)
		defer cancel()
	}
	return untilSignalled(ctx, func(ctx context.Context) (driver.Lease, error) { return s.Acquire(ctx, req) })
}

// lockLabel tells the holds of snib lock from others: they are meant to outlive the process that is shown.
const lockLabel = "snib lock"

func (l *locking) request(name string) driver.Request {
	host, _ := os.Hostname() // shown to people only
	return driver.Request{
		Name: name, Owner: l.owner, TTL: l.ttl.value, Detached: true,
		NoWait: l.try || l.wait.set && l.wait.value == 0,
		// Not our own pid: we are gone when somebody looks. Our parent is the script.
		Holder: driver.Holder{Host: host, PID: os.Getppid(), Label: lockLabel},
	}
}

// ttlFits reports a TTL that the backend can't do. The core checks it for "snib run".
func ttlFits(info driver.Info, ttl time.Duration) error {
	switch {
	case ttl < info.MinTTL:
		return usagef("--ttl %v is shorter than %v, the least of this store", ttl, info.MinTTL)
	case info.MaxTTL > 0 && ttl > info.MaxTTL:
		return usagef("--ttl %v is longer than %v, the most of this store", ttl, info.MaxTTL)
	}
	return nil
}

func (l *locking) print(name string, token uint64) error {
	switch l.output.value {
	case "json":
		return l.printJSON(struct {
			Schema string  `json:"schema"`
			Name   string  `json:"name"`
			Owner  string  `json:"owner"`
			Token  uint64  `json:"token"`
			TTL    float64 `json:"ttl"`
		}{"snib.lock/1", name, l.owner, token, seconds(l.ttl.value)})
	case "name":
		return l.printf("%s\n", printable(name))
	case "table":
		return l.printf("%-14s%s\n%-14s%s\n%-14s%d\n%-14s%s\n",
			"name", printable(name), "owner", printable(l.owner), "token", token, "lease left", short(l.ttl.value))
	}
	return l.printf("export SNIB_NAME=%s\nexport SNIB_OWNER=%s\nexport SNIB_TOKEN=%d\n", shellQuote(name), shellQuote(l.owner), token)
}

func (a *app) unlockCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "unlock NAME [--owner ID]",
		Short:             "free a lock that snib lock took",
		Example:           unlockExamples,
		Long:              unlockNotes,
		Args:              oneName,
		ValidArgsFunction: a.completeName,
	}
	owner := cmd.Flags().String("owner", "", "who took it: the `ID` that snib lock printed (default: $"+ownerVar+")")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		who := *owner
		if who == "" {
			who = os.Getenv(ownerVar)
		}
		if who == "" {
			return usagef("no owner: give --owner, or set %s to what snib lock printed", ownerVar)
		}
		return a.view(func(ctx context.Context, s *backend.Store) error { return a.unlock(ctx, s, args[0], who) })
	}
	return cmd
}

// unlock frees owner's hold and nobody else's. That the hold is over already is told by an exit code: the script that
// calls us was not alone to its end.
func (a *app) unlock(ctx context.Context, s *backend.Store, name, owner string) error {
	around, err := heldAround()
	if err != nil {
		return err
	}
	for _, h := range around {
		if h.Owner == owner {
			return usagef("%s is held by the snib run around this command, which frees it at its end", printable(name))
		}
	}
	st, err := status(ctx, s, name)
	if err != nil {
		return err
	}
	if h := holding(st, owner); h != nil {
		err = breakHold(ctx, s, name, *h)
		if err == nil {
			a.note("released %s", printable(name))
		}
		if !errors.Is(err, snib.ErrLost) {
			return err
		}
	}
	return fail(exitLost, "%s was not held by this owner any more: its --ttl was over, or it was released",
		printable(name))
}

// breakHold frees exactly the hold h.
func breakHold(ctx context.Context, s *backend.Store, name string, h driver.Holding) error {
	i, err := inspector(s)
	if err != nil {
		return err
	}
	if err := i.Break(ctx, name, h.Owner, h.Token); err != nil {
		return fmt.Errorf("%s: %w", s.URL, err)
	}
	return nil
}

// refused finds out, for err, why a lock was not to be had: what to say of it, or the error of a store that is the reason itself.
// Waited means that there was time for the reason to change.
func refused(err error, waited bool, s *backend.Store, req driver.Request) (text string, failed error) {
	name := printable(req.Name)
	left, ok := backend.Grace(err)
	if !ok {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		st, err := status(ctx, s, req.Name)
		switch {
		case err != nil && waited:
			return "", err
		case err == nil && len(st.Holders) > 0:
			return fmt.Sprintf("%s is taken: %s", name, heldBy(st.Holders[0])), nil
		case waited:
			if left, err = s.Grace(ctx, req); err != nil {
				return "", fmt.Errorf("%s: nobody is seen to hold %s, and yet it is not granted: %w", s.URL, name, err)
			}
		}
	}
	if left > 0 {
		return fmt.Sprintf("%s may be taken: %s (failover-grace)", name, withheld(left)), nil
	}
	return name + " is taken", nil
}
