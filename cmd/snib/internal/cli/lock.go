package cli

import (
	"bufio"
	"cmp"
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

// idVar is the environment variable in which "snib unlock" finds the id that "snib lock" printed.
const idVar = "SNIB_ID"

// keepersVar is the variable in which "snib unlock" finds the keepers of "snib hold". For each
// hold of the script, it has the pid of its keeper and the digest of its id: "PID:DIGEST".
const keepersVar = "SNIB_KEEPER"

// A lockCommand is one call of "snib lock".
type lockCommand struct {
	*app
	waitFlags
	ttl    *duration
	id     string
	output *choice
}

func (a *app) newLockCommand() *cobra.Command {
	l := &lockCommand{app: a}
	cmd := &cobra.Command{
		Use:     "lock NAME --ttl DURATION",
		Short:   "take a lock and leave it taken, for scripts",
		Example: lockExamples,
		Long:    lockNotes,
		Args:    oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, useless := range []string{"try", "wait", "output"} {
				if l.id != "" && cmd.Flags().Changed(useless) {
					return usagef("--id extends a hold: it does not wait or print anything, so leave out --%s", useless)
				}
			}
			return l.lock(cmd.Context(), args[0])
		},
		ValidArgsFunction: a.completeName,
	}
	f := cmd.Flags()
	l.ttl = addDuration(cmd, "ttl", "", "the lock ends after this long; required, because nobody renews it", 0, minTTL)
	l.waitFlags.register(cmd)
	f.StringVar(&l.id, "id", "",
		"don't take the lock, but extend the hold with this `ID`, as snib lock printed it; - for one line of standard input")
	l.output = addOutput(cmd, "shell", "json")
	return cmd
}

func (l *lockCommand) lock(ctx context.Context, name string) error {
	if !l.ttl.set {
		return usagef("no --ttl was given: nobody renews this lock, so say how long it may last, such as --ttl 10m")
	}
	if err := l.waitFlags.check(); err != nil {
		return err
	}
	acq := l.newAcquirer(name)
	s, err := acq.connect(nil)
	if err != nil {
		return err
	}
	defer closeSoon(s) // the lease is meant to outlive this process
	if err := l.checkStore(s); err != nil {
		return err
	}
	if l.id != "" {
		return l.extend(ctx, s, name)
	}
	if err := refuseNestedInEnv(ctx, s, name); err != nil {
		return err
	}
	locker, err := snib.New(recordingDriver{s.Driver, acq}, append(acq.options(l.ttl.value), snib.Detached())...)
	if err != nil {
		return err
	}
	sigs := make(chan os.Signal, 8)
	notifySignals(sigs, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	defer signal.Stop(sigs)
	lock, err := acq.acquire(locker, s, []string{name}, sigs)
	if err != nil {
		return acq.explainRefusal(err, s, exitBusy)
	}
	if err := l.printHold(l.output.value, lock, l.ttl.value, ""); err != nil {
		_ = releaseSoon(lock) // nobody knows its id and token
		return err
	}
	return nil
}

// checkStore reports a store in which a hold can't outlive this process, or not with this TTL.
func (l *lockCommand) checkStore(s *backend.Store) error {
	if s.Info().Tenure == driver.TenureSession {
		return failf(exitConfig, "in a store of the kind %s a lock ends with the process that took it: use snib run, or choose another "+
			"store with --url", s.Info().Backend)
	}
	return checkTTL(s.Info(), l.ttl.value)
}

// extend makes the hold last for at least one TTL from now.
func (l *lockCommand) extend(ctx context.Context, s *backend.Store, name string) error {
	id, err := readID(l.id)
	if err != nil {
		return err
	}
	ctx, cancel := answerWithin(ctx, driver.AnswerTimeout)
	defer cancel()
	answer := s.Renew(ctx, []driver.Lease{s.Lease(name, id, l.ttl.value)})[0]
	return l.reportChange(s, name, "extended", answer.Err)
}

// reportChange reports how a request about a hold went. If the hold had ended before, the exit code
// says so: its script may not have been alone until its end.
func (a *app) reportChange(s *backend.Store, name, change string, err error) error {
	switch {
	case errors.Is(err, snib.ErrLost):
		return failf(exitLost, "%s was not held under this id any more: its --ttl was over, or it was released", printable(name))
	case err != nil:
		return fmt.Errorf("%s: %w", s.URL, err)
	}
	a.verbosef("%s %s", change, printable(name))
	return nil
}

// readID returns the id that a flag names. For "-" it reads the first line of standard input, so
// that the id appears in no command line.
func readID(flag string) (string, error) {
	if flag != "-" {
		return flag, nil
	}
	const maxBytes = 4 * driver.MaxName
	line, err := bufio.NewReader(io.LimitReader(os.Stdin, maxBytes)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", usagef("--id - can't read standard input: %w", err)
	}
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", usagef("--id - found no id on standard input")
	}
	return line, nil
}

// newAcquirer returns an acquirer for the lock name.
func (l *lockCommand) newAcquirer(name string) *acquirer {
	return &acquirer{
		app: l.app, waitFlags: l.waitFlags, noWait: l.asksOnce(), names: []string{name},
		// Not our own pid: this process is gone when somebody looks. The parent is the script.
		holder: driver.Holder{PID: os.Getppid(), Label: labelWithUser("snib lock")},
	}
}

// checkTTL reports a TTL that the backend does not support.
func checkTTL(info driver.Info, ttl time.Duration) error {
	longest := cmp.Or(info.MaxTTL, driver.LongestTTL)
	switch {
	case ttl < info.MinTTL:
		return usagef("--ttl %v is shorter than %v, the minimum of this store", ttl, info.MinTTL)
	case ttl < info.SessionTTL:
		return usagef("--ttl %v is shorter than %v, for which the session of a dead holder lasts at least in this store; set session-timeout in the URL instead",
			ttl, info.SessionTTL)
	case ttl > longest:
		return usagef("--ttl %v is longer than %v, the maximum of this store", ttl, longest)
	}
	return nil
}

// printHold prints what a script needs to know of its hold, unless that is over: this process may
// have stood still since the grant. keepers is for keepersVar; "" for none.
func (a *app) printHold(output string, lock *snib.Lock, ttl time.Duration, keepers string) error {
	if lock.Validity() <= 0 {
		return failf(exitLost, "lost %s: its lease was over before the script could learn of it", printable(lock.Name()))
	}
	name, id, token := lock.Name(), lock.ID(), lock.Token()
	return a.print(output, result{
		document: func() any { return heldJSON{"snib.lock/1", name, id, token, seconds(ttl), keepers} },
		text: func() string {
			text := fmt.Sprintf("export SNIB_NAME=%s\nexport %s=%s\nexport SNIB_TOKEN=%d\n", shellQuote(name), idVar, shellQuote(id), token)
			if keepers != "" {
				text += fmt.Sprintf("export %s=%s\n", keepersVar, shellQuote(keepers))
			}
			return text
		},
	})
}

func (a *app) newUnlockCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "unlock NAME [--id ID]",
		Short:             "free a lock that snib lock or snib hold took",
		Example:           unlockExamples,
		Long:              unlockNotes,
		Args:              oneName,
		ValidArgsFunction: a.completeName,
	}
	flag := cmd.Flags().String("id", "", "the `ID` of the hold, as snib lock printed it, or - for one line of standard input (default: $"+idVar+")")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		id, err := readID(*flag)
		if err != nil {
			return err
		}
		if id == "" {
			id = os.Getenv(idVar)
		}
		if id == "" {
			return usagef("no id: give --id, or set %s to what snib lock printed", idVar)
		}
		return a.withStore(backend.Look, func(ctx context.Context, s *backend.Store) error {
			return a.unlock(ctx, s, args[0], id)
		})
	}
	return cmd
}

// unlock releases the hold with an id and no other.
func (a *app) unlock(ctx context.Context, s *backend.Store, name, id string) error {
	outer, err := outerHolds()
	if err != nil {
		return err
	}
	for _, h := range outer {
		if h.ID == id {
			return usagef("this is the id of a snib run around this command, which frees its lock at its end")
		}
	}
	byKeeper := false
	if hasKeeper(id) { // otherwise the right to look is not needed
		st, err := s.Status(ctx, name)
		if err != nil {
			return fmt.Errorf("to end its keeper, snib has to read the lock: %w", err)
		}
		byKeeper = endKeeper(st, id)
	}
	err = release(ctx, s, name, id) // the keeper may have been killed, or the store did not answer it
	if byKeeper && errors.Is(err, snib.ErrLost) {
		err = nil
	}
	return a.reportChange(s, name, "released", err)
}

// release releases the hold with an id. Where holds belong to sessions, only force can do that.
func release(ctx context.Context, s *backend.Store, name, id string) error {
	ctx, cancel := answerWithin(ctx, driver.AnswerTimeout)
	defer cancel()
	if s.Info().Tenure == driver.TenureSession {
		return s.Break(ctx, name, id)
	}
	return s.Lease(name, id, s.Info().MinTTL).Release(ctx)
}
