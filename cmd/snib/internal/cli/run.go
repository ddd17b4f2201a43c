package cli

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/cmd/snib/internal/child"
	"github.com/sniblock/snib/driver"
)

// minTTL is the shortest TTL that a process on a busy machine can keep renewing.
const minTTL = 100 * time.Millisecond

// defaultTTL is the default of --ttl.
const defaultTTL = 30 * time.Second

const runUsage = "usage: snib run NAME -- COMMAND [ARG...]"

// A runCommand is one call of "snib run".
type runCommand struct {
	*app
	ttl, wait, minHold, maxHold, timeout, killAfter *duration

	try, skip, shared, fair bool
	busyCode, slots         int
	onLost                  *choice

	name     string
	argv     []string
	sigs     chan os.Signal
	renewals renewals
}

func (a *app) newRunCommand() *cobra.Command {
	r := &runCommand{app: a}
	cmd := &cobra.Command{
		Use:               "run NAME [flags] -- COMMAND [ARG...]",
		Short:             "run a command while holding a lock",
		Example:           runExamples,
		Long:              runNotes,
		Args:              r.parseArguments,
		RunE:              func(cmd *cobra.Command, _ []string) error { return r.run(cmd) },
		ValidArgsFunction: r.complete,
	}
	f := cmd.Flags()
	f.SortFlags = false
	r.wait = addDuration(cmd, "wait", "w", "wait at most this long for the lock (default: for ever)", 0, 0)
	f.BoolVarP(&r.try, "try", "n", false, "don't wait: if the lock is taken, exit 75")
	f.BoolVar(&r.skip, "skip", false, "if somebody holds the lock, exit 0 and say nothing (for cron); doesn't wait without -w")
	f.IntVarP(&r.busyCode, "busy-exit-code", "E", exitBusy, "exit code `N` when the lock is taken")
	f.BoolVarP(&r.shared, "shared", "s", false, "share the lock with others that share it (the read side)")
	f.IntVar(&r.slots, "slots", 0, "a semaphore: `N` callers hold the lock at once; all must give the same number")
	f.BoolVar(&r.fair, "fair", false, "serve all waiters with --fair strictly in order of arrival")
	r.ttl = addDuration(cmd, "ttl", "", "how long the lock outlives snib if it dies or hangs (not in etcd and ZooKeeper: see -v)", defaultTTL, minTTL)
	r.minHold = addDuration(cmd, "min-hold", "", "keep the lock taken for this long, also if the command is faster", 0, 1)
	r.maxHold = addDuration(cmd, "max-hold", "", "give the lock up after this long: end the command and exit 79", 0, 1)
	r.timeout = addDuration(cmd, "timeout", "", "end the command after this long and exit 124", 0, 1)
	r.killAfter = addDuration(cmd, "kill-after", "k", "how long a command has between the first signal and KILL", 5*time.Second, 0)
	r.onLost = addChoice(cmd, "on-lost", "", "what happens to the command when the lock is lost", "kill", "continue")
	return cmd
}

// parseArguments checks and stores the arguments before and after the "--".
func (r *runCommand) parseArguments(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	if dash == 0 && len(args) > 1 && args[1] == "--" { // the name begins with a dash
		args, dash = append([]string{args[0]}, args[2:]...), 1
	}
	switch {
	case len(args) == 0 || dash == 0:
		return usagef("no lock was named: %s", runUsage)
	case dash < 0:
		return usagef("no -- before the command: %s", runUsage)
	case dash == len(args):
		return usagef("no command was given: %s", runUsage)
	case dash > 1:
		return usagef("%q is one argument too many before the --: %s", args[1], runUsage)
	}
	r.name, r.argv = args[0], args[dash:]
	return driver.CheckName(r.name)
}

// checkFlagConflicts reports flags that contradict one another.
func (r *runCommand) checkFlagConflicts(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	switch {
	case r.busyCode < 0 || r.busyCode > 255:
		return usagef("--busy-exit-code %d: an exit code is 0 to 255", r.busyCode)
	case given("slots") && r.slots <= 0:
		return usagef("--slots %d: give a number of at least 1", r.slots)
	case r.shared && r.slots > 0:
		return usagef("--shared and --slots exclude each other: a lock is either shared by any number or has slots")
	case r.try && r.wait.set:
		return usagef("--try and --wait exclude each other: give one of them")
	case r.skip && given("busy-exit-code"):
		return usagef("--skip and --busy-exit-code exclude each other: --skip means exit code 0")
	case r.maxHold.set && r.minHold.value > r.maxHold.value:
		return usagef("--min-hold %v is longer than --max-hold %v: the hold would have to end before it may", r.minHold.value, r.maxHold.value)
	case r.verbose && r.quiet:
		return usagef("--verbose and --quiet exclude each other: give one of them")
	}
	return nil
}

func (r *runCommand) run(cmd *cobra.Command) error {
	if err := r.checkFlagConflicts(cmd); err != nil {
		return err
	}
	path, err := lookUp(r.argv[0])
	if err != nil {
		return err
	}
	outer, err := outerHolds()
	if err != nil {
		return err
	}
	acq := r.newAcquirer()
	s, err := acq.connect()
	if err != nil {
		return err
	}
	if !r.ttl.set {
		r.ttl.value = defaultTTLFor(s.Info())
		acq.req.TTL = r.ttl.value
	}
	if err := r.checkSupport(s.Info()); err != nil {
		closeSoon(s)
		return err
	}
	locker, err := snib.New(recordingDriver{s.Driver, acq}, r.options(acq)...)
	if err != nil {
		closeSoon(s)
		return err
	}
	defer closeSoon(locker) // the lock is released before that
	if err := refuseNested(cmd.Context(), s, r.name, outer); err != nil {
		return err
	}
	r.sigs = make(chan os.Signal, 64)
	notifySignals(r.sigs, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGWINCH, syscall.SIGCONT,
		// Otherwise a reader of our messages that goes away would end this process,
		// and the command with it.
		syscall.SIGPIPE)
	lock, err := acq.acquire(locker, s, r.sigs)
	if err != nil {
		return r.handleTaken(acq.explainRefusal(err, s))
	}
	if r.ttl.set && s.Info().Tenure == driver.TenureSession {
		r.verbosef("this store does not use --ttl %v: a lock outlives snib by the timeout of the session, which session-timeout in the URL sets", r.ttl.value)
	}
	return r.runUnderLock(s, lock, path, append(outer, outerHold{s.URL, r.name, lock.Owner()}))
}

// newAcquirer returns an acquirer for the lock of the command.
func (r *runCommand) newAcquirer() *acquirer {
	return &acquirer{
		app: r.app, wait: r.wait, noWait: r.try || r.wait.set && r.wait.value == 0 || r.skip && !r.wait.set,
		req: driver.Request{
			Name: r.name, Owner: rand.Text(), TTL: r.ttl.value, Shared: r.shared, Slots: r.slots,
			Holder: driver.Holder{Label: filepath.Base(r.argv[0])},
		},
	}
}

func (r *runCommand) options(acq *acquirer) []snib.Option {
	opts := append(acq.options(), snib.Tracing(r.renewals.trace(r.app)))
	when := func(cond bool, o snib.Option) {
		if cond {
			opts = append(opts, o)
		}
	}
	when(r.minHold.set, snib.MinHold(r.minHold.value))
	when(r.maxHold.set, snib.MaxHold(r.maxHold.value))
	when(r.shared, snib.Shared())
	when(r.slots > 0, snib.Slots(r.slots))
	when(r.fair, snib.Fair())
	return opts
}

// checkSupport reports what the store does not support. The core would do so too, but
// in terms of its options.
func (r *runCommand) checkSupport(info driver.Info) error {
	if err := checkTTL(info, r.ttl.value); err != nil {
		return err
	}
	var missing string
	switch {
	case r.shared && !info.Shared:
		missing = "shared locks: drop --shared"
	case r.slots > 0 && !info.Slots:
		missing = "semaphores: drop --slots"
	case r.fair && info.Fairness == driver.FairNever:
		missing = "order of arrival: drop --fair"
	default:
		return nil
	}
	return failf(exitConfig, "a store of the kind %s has no %s, or choose another store with --url", info.Backend, missing)
}

// handleTaken decides how the command ends if it did not get the lock. --skip applies only to a
// lock that somebody holds, not to an outage.
func (r *runCommand) handleTaken(err error) error {
	if t, ok := errors.AsType[takenError](err); ok {
		switch {
		case r.skip:
			r.verbosef("%s is taken: skipped", printable(r.name))
			return nil
		case r.quiet:
			return silentExit(r.busyCode)
		}
		return failf(r.busyCode, "%s", t.text)
	}
	return err
}

// runUnderLock runs the command while it holds the lock, and then releases the lock.
func (r *runCommand) runUnderLock(s *backend.Store, lock *snib.Lock, path string, holds []outerHold) error {
	r.verbosef("holding %s, token %d", printable(r.name), lock.Token())
	g, err := r.start(s, lock, path, holds)
	if err != nil {
		_ = r.release(lock) // it has reported its failure
		return err
	}
	end := g.supervise()
	err = r.release(lock)
	if errors.Is(err, snib.ErrLost) && end.code != exitLost {
		r.messagef("lost %s: by force, or its lease was over, before its release; the command had ended by itself", printable(r.name))
		end.code = exitLost
	}
	if end.code != exitLost {
		end.raiseSIGINT()
	}
	return silentExit(end.code)
}

// release releases the lock. A failure is worth a warning, but does not change the
// exit code of the command.
func (r *runCommand) release(lock *snib.Lock) error {
	left, began := lock.Validity(), time.Now()
	err := releaseSoon(lock)
	const warning = "warning: %s could not be released"
	switch {
	case err == nil:
		r.verbosef("released %s", printable(r.name))
	case errors.Is(err, snib.ErrLost):
	case errors.Is(err, errUnreleased) && left == 0: // the loss was reported
	case errors.Is(err, errUnreleased) && time.Since(began) >= left:
		r.messagef(warning+", and its lease is over by now: %s", printable(r.name), noAnswer)
	case errors.Is(err, errUnreleased):
		r.messagef(warning+": %s; it lapses by itself within %s", printable(r.name), noAnswer, short(r.ttl.value))
	default:
		r.messagef(warning+": %s; it lapses by itself within %s", printable(r.name), unavailableText(err), short(r.ttl.value))
	}
	return err
}

func (r *runCommand) start(s *backend.Store, lock *snib.Lock, path string, holds []outerHold) (*supervisor, error) {
	env, err := r.environ(lock, holds)
	if err != nil {
		return nil, err
	}
	p := child.Program{Path: path, Args: r.argv, Env: env, Keep: s.File(lock.Name(), lock.Owner())}
	kid, err := child.Start(p)
	// The shell runs a script that names no interpreter, as with execvp.
	if errors.Is(err, syscall.ENOEXEC) {
		p.Path, p.Args = "/bin/sh", append([]string{"sh", path}, r.argv[1:]...)
		kid, err = child.Start(p)
	}
	if err != nil {
		return nil, failf(exitNotExecutable, "%s can't be run: %w", printable(path), err)
	}
	return r.newSupervisor(lock, kid), nil
}

// environ returns the environment of the command.
func (r *runCommand) environ(lock *snib.Lock, holds []outerHold) ([]string, error) {
	list, err := encode(holds, "")
	if err != nil {
		return nil, err
	}
	return environ(
		"SNIB_NAME="+r.name,
		"SNIB_TOKEN="+strconv.FormatUint(lock.Token(), 10),
		"SNIB_OWNER="+lock.Owner(),
		heldVar+"="+string(list),
	), nil
}

// lookUp finds the file to run, as execvp(3) does.
func lookUp(command string) (string, error) {
	path, err := exec.LookPath(command)
	switch {
	case err == nil, errors.Is(err, exec.ErrDot): // "." is in PATH on purpose
		return path, nil
	case errors.Is(err, exec.ErrNotFound) && !strings.Contains(command, "/"):
		if file := findInPath(command); file != "" {
			return "", failf(exitNotExecutable, "%s is not executable; chmod +x it?", printable(file))
		}
		return "", failf(exitNotFound, "%s: command not found; is it in PATH?", printable(command))
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound):
		return "", failf(exitNotFound, "%s: no such file", printable(command))
	case errors.Is(err, syscall.EISDIR):
		return "", failf(exitNotExecutable, "%s is a folder and not a command", printable(command))
	}
	return "", failf(exitNotExecutable, "%s is not executable; chmod +x it?", printable(command))
}

// findInPath returns a file with the name command in PATH, executable or not, or "".
func findInPath(command string) string {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		file := filepath.Join(dir, command)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && command != "" {
			return file
		}
	}
	return ""
}

// notifySignals relays signals to sigs. Signals that our parent ignores stay ignored, also for
// the command: nohup relies on that.
func notifySignals(sigs chan<- os.Signal, signals ...syscall.Signal) {
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(sigs, s)
		}
	}
}

// complete completes the name of a lock, and leaves the command after it to the shell.
func (r *runCommand) complete(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return r.completeName(cmd, args, prefix)
}
