package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

// ownerVar is the environment variable in which "snib unlock" finds the owner
// that "snib lock" printed.
const ownerVar = "SNIB_OWNER"

// A lockCommand is one call of "snib lock".
type lockCommand struct {
	*app
	ttl, wait, retry *duration
	owner            string
	try              bool
	output           *choice
}

func (a *app) newLockCommand() *cobra.Command {
	l := &lockCommand{app: a}
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
	l.ttl = addDuration(cmd, "ttl", "", "the lock ends after this long; required, because nobody renews it", 0, minTTL)
	l.wait = addDuration(cmd, "wait", "w", "wait at most this long for the lock (default: for ever)", 0, 0)
	f.BoolVarP(&l.try, "try", "n", false, "don't wait: if the lock is taken, exit 75")
	l.retry = addRetry(cmd)
	f.StringVar(&l.owner, "owner", "",
		"any `ID` for the owner, or - for one line of standard input; the same owner gets the same lock again (default: a new random id)")
	l.output = addOutput(cmd, "shell", "json", "table", "name")
	return cmd
}

func (l *lockCommand) lock(ctx context.Context, name string) error {
	if err := l.applyPolicy(name); err != nil {
		return err
	}
	switch {
	case !l.ttl.set:
		return usagef("no --ttl was given: nobody renews this lock, so say how long it may last, such as --ttl 10m")
	case l.try && l.wait.set:
		return usagef("--try and --wait exclude each other: give one of them")
	}
	var err error
	if l.owner, err = readOwner(l.owner); err != nil {
		return err
	}
	if len(l.owner) > driver.MaxName {
		return usagef("--owner has %d bytes; at most %d are allowed", len(l.owner), driver.MaxName)
	}
	acq := l.newAcquirer(name)
	acq.fixedOwner = l.owner != ""
	s, err := acq.connect()
	if err != nil {
		return err
	}
	defer closeSoon(s) // the lease is meant to outlive this process
	if s.Private() {
		return failf(exitConfig, "%s ends with this process, and the lock with it; choose another with --url", s.URL)
	}
	if s.Info().Tenure == driver.TenureSession {
		return failf(exitConfig, "in a store of the kind %s a lock ends with the process that took it: use snib run, or choose another "+
			"store with --url", s.Info().Backend)
	}
	if err := checkTTL(s.Info(), l.ttl.value); err != nil {
		return err
	}
	if err := refuseNestedInEnv(ctx, s, name); err != nil {
		return err
	}
	locker, err := snib.New(detached{recordingDriver{s.Driver, acq}, acq.req.Holder}, acq.options()...)
	if err != nil {
		return err
	}
	sigs := make(chan os.Signal, 8)
	notifySignals(sigs, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(sigs)
	lock, err := acq.acquire(locker, s, sigs)
	if err != nil {
		err = acq.explainRefusal(err, s)
		if t, ok := errors.AsType[takenError](err); ok {
			if l.quiet {
				return silentExit(exitBusy)
			}
			return failf(exitBusy, "%s", t.text)
		}
		return err
	}
	l.owner = acq.req.ID
	if err := l.report(name, lock.Token()); err != nil {
		_ = releaseSoon(lock) // nobody knows its owner and token
		return err
	}
	return nil
}

// applyPolicy limits the TTL to what the configuration file allows. As nobody renews the lock, its
// TTL is how long it is held.
func (l *lockCommand) applyPolicy(name string) error {
	p, err := l.policy(name)
	if err != nil {
		return err
	}
	if err := p.limitTTL(l.ttl, 0); err != nil || !l.ttl.set {
		return err
	}
	return p.limitHold("--ttl", l.ttl)
}

// readOwner returns the owner that a flag names. For "-" it reads the first line of standard
// input, so that the owner appears in no command line.
func readOwner(flag string) (string, error) {
	if flag != "-" {
		return flag, nil
	}
	const maxBytes = 4 * driver.MaxName
	line, err := bufio.NewReader(io.LimitReader(os.Stdin, maxBytes)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", usagef("--owner - can't read standard input: %w", err)
	}
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", usagef("--owner - found no owner on standard input")
	}
	return line, nil
}

// A detached driver acquires leases that outlive this process.
type detached struct {
	driver.Driver
	holder driver.Holder
}

// Acquire implements [driver.Driver].
func (d detached) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	req.Detached, req.Holder = true, d.holder
	return d.Driver.Acquire(ctx, req)
}

// lockLabel begins the label of the holds of snib lock, which are meant to outlive the process that
// they show.
const lockLabel = "snib lock"

// newAcquirer returns an acquirer for the lock name.
func (l *lockCommand) newAcquirer(name string) *acquirer {
	host, _ := os.Hostname() // only people read it
	return &acquirer{
		app: l.app, wait: l.wait, retry: l.retry, noWait: l.try || l.wait.set && l.wait.value == 0,
		req: driver.Request{
			Name: name, ID: l.owner, TTL: l.ttl.value,
			// Not our own pid: this process is gone when somebody looks. The parent is the
			// script.
			Holder: driver.Holder{Host: host, PID: os.Getppid(), Label: labelWithUser(lockLabel), Kind: driver.KindDetached},
		},
	}
}

// checkTTL reports a TTL that the backend does not support.
func checkTTL(info driver.Info, ttl time.Duration) error {
	switch {
	case ttl < info.MinTTL:
		return usagef("--ttl %v is shorter than %v, the minimum of this store", ttl, info.MinTTL)
	case ttl < info.SessionTTL:
		return usagef("--ttl %v is shorter than %v, for which the session of a dead holder lasts at least in this store; set session-timeout in the URL instead",
			ttl, info.SessionTTL)
	case info.MaxTTL > 0 && ttl > info.MaxTTL:
		return usagef("--ttl %v is longer than %v, the maximum of this store", ttl, info.MaxTTL)
	}
	return nil
}

func (l *lockCommand) report(name string, token uint64) error {
	return l.print(l.output.value, result{
		document: func() any { return heldJSON{"snib.lock/1", name, l.owner, token, seconds(l.ttl.value)} },
		names:    func() []string { return []string{printable(name)} },
		text: func() string {
			if l.output.value == "shell" {
				return fmt.Sprintf("export SNIB_NAME=%s\nexport SNIB_OWNER=%s\nexport SNIB_TOKEN=%d\n", shellQuote(name), shellQuote(l.owner), token)
			}
			return fmt.Sprintf("%-14s%s\n%-14s%s\n%-14s%d\n%-14s%s\n",
				"name", printable(name), "owner", printable(l.owner), "token", token, "lease left", short(l.ttl.value))
		},
	})
}

func (a *app) newUnlockCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "unlock NAME [--owner ID]",
		Short:             "free a lock that snib lock took",
		Example:           unlockExamples,
		Long:              unlockNotes,
		Args:              oneName,
		ValidArgsFunction: a.completeName,
	}
	owner := cmd.Flags().String("owner", "", "the `ID` of the owner, as snib lock printed it, or its digest, or - for one line of standard input (default: $"+ownerVar+")")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		who, err := readOwner(*owner)
		if err != nil {
			return err
		}
		if who == "" {
			who = os.Getenv(ownerVar)
		}
		if who == "" {
			return usagef("no owner: give --owner, or set %s to what snib lock printed", ownerVar)
		}
		return a.withStore(func(ctx context.Context, s *backend.Store) error { return a.unlock(ctx, s, args[0], who) })
	}
	return cmd
}

// unlock releases the owner's hold and no other. If that hold has ended before, the exit code
// says so: the script that calls us may not have been alone until its end.
func (a *app) unlock(ctx context.Context, s *backend.Store, name, owner string) error {
	outer, err := outerHolds()
	if err != nil {
		return err
	}
	for _, h := range outer {
		if h.Owner == owner {
			return usagef("%s is held by the snib run around this command, which frees it at its end", printable(name))
		}
	}
	st, err := status(ctx, s, name)
	if err != nil {
		return err
	}
	h := findHold(st, owner)
	if h != nil && a.endKeeper(*h) {
		a.verbosef("released %s", printable(name))
		return nil
	}
	if h != nil {
		err = breakHold(ctx, s, name, *h)
		if err == nil {
			a.verbosef("released %s", printable(name))
		}
		if !errors.Is(err, snib.ErrLost) {
			return err
		}
	}
	return failf(exitLost, "%s was not held by this owner any more: its --ttl was over, or it was released",
		printable(name))
}

// breakHold ends exactly the hold h, by force.
func breakHold(ctx context.Context, s *backend.Store, name string, h driver.Holding) error {
	if err := s.Break(ctx, name, h.ID); err != nil {
		return fmt.Errorf("%s: %w", s.URL, err)
	}
	return nil
}
