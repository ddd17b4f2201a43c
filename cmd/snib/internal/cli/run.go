package cli

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/cmd/snib/internal/child"
	"github.com/sniblock/snib/driver"
)

// minTTL is the shortest TTL that a process on a busy machine can keep renewing.
const minTTL = 100 * time.Millisecond

// defaultTTL is the default of --ttl.
const defaultTTL = 30 * time.Second

// maxLabel is the greatest length of --label in bytes. A store keeps the label with each hold.
const maxLabel = 128

const runUsage = "usage: snib run NAME [--] COMMAND [ARG...]"

// A runCommand is one call of "snib run".
type runCommand struct {
	*app
	waitFlags
	ttl, minHold, maxHold, timeout, killAfter *duration

	skip, shared, fair, any bool
	busyCode, slots         int
	shell, label            string
	also                    []string

	name       string
	names      []string // name and also, each once: sorted, or with --any as given
	argv       []string
	sigs       chan os.Signal
	renewals   renewals
	maxHoldEnd time.Time // of the first lock that was acquired, if --max-hold was given
}

func (a *app) newRunCommand() *cobra.Command {
	r := &runCommand{app: a}
	cmd := &cobra.Command{
		Use:               "run NAME [flags] [--] COMMAND [ARG...]",
		Short:             "run a command while holding a lock",
		Example:           runExamples,
		Long:              runNotes,
		Args:              r.parseArguments,
		RunE:              func(cmd *cobra.Command, _ []string) error { return r.run(cmd) },
		ValidArgsFunction: r.complete,
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // the flags of the command are its own: see parseArguments
	r.waitFlags.register(cmd)
	f.BoolVar(&r.skip, "skip", false, "if somebody holds the lock, exit 0 and say nothing (for cron); doesn't wait without -w")
	f.IntVarP(&r.busyCode, "busy-exit-code", "E", exitBusy, "exit code `N` when the lock is taken")
	f.BoolVarP(&r.shared, "shared", "s", false, "share the lock with others that share it (the read side)")
	f.IntVar(&r.slots, "slots", 0, "a semaphore: `N` callers hold the lock at once; while callers give several numbers, never more than a holder gave")
	f.BoolVar(&r.fair, "fair", false, "serve all waiters with --fair strictly in order of arrival")
	r.ttl = addDuration(cmd, "ttl", "", "how long the lock outlives snib if it dies or hangs (not in etcd and ZooKeeper: see -v)", defaultTTL, minTTL)
	r.minHold = addDuration(cmd, "min-hold", "", "keep the lock taken for this long, also if the command is faster; not with --also", 0, 1)
	r.maxHold = addDuration(cmd, "max-hold", "", "give the lock up after this long: end the command and exit 79", 0, 1)
	r.timeout = addDuration(cmd, "timeout", "", "end the command after this long and exit 124", 0, 1)
	r.killAfter = addDuration(cmd, "kill-after", "k", "how long a command has between the first signal and KILL", 5*time.Second, 0)
	f.StringVarP(&r.shell, "command", "c", "", "run `STRING` with sh -c")
	f.StringArrayVar(&r.also, "also", nil, "hold the lock `NAME`, too; may be given several times")
	f.BoolVar(&r.any, "any", false, "hold just one of NAME and --also, whichever is free first; SNIB_NAME says which")
	f.StringVar(&r.label, "label", "", "a `TEXT` that shows others what holds the lock (default: the command's name)")
	return cmd
}

// parseArguments reads the arguments from the lock's name on: flags of ours, and the command from
// the first argument that is no flag, or from "--".
func (r *runCommand) parseArguments(cmd *cobra.Command, args []string) error {
	// The flags before the name were parsed. After "--", the name may begin with a dash.
	if len(args) == 0 || cmd.ArgsLenAtDash() == 0 && (len(args) == 1 || args[1] != "--") {
		return usagef("no lock was named: %s", runUsage)
	}
	if err := cmd.Flags().Parse(args[1:]); err != nil {
		return cmd.FlagErrorFunc()(cmd, err)
	}
	if help, err := cmd.Flags().GetBool("help"); help || err != nil {
		return pflag.ErrHelp
	}
	r.name, r.argv = args[0], cmd.Flags().Args()
	switch given := cmd.Flags().Changed("command"); {
	case given && len(r.argv) > 0:
		return usagef("-c has the command already, so %q is one argument too many", r.argv[0])
	case given:
		r.argv = []string{"sh", "-c", r.shell}
	case len(r.argv) == 0:
		return usagef("no command was given: %s", runUsage)
	}
	if r.any && len(r.also) == 0 {
		return usagef("--any chooses among several names: give the others with --also")
	}
	r.names = append([]string{r.name}, r.also...)
	for _, name := range r.names {
		if err := oneName(cmd, []string{name}); err != nil {
			return err
		}
	}
	if !r.any {
		r.names = slices.Compact(slices.Sorted(slices.Values(r.names)))
	}
	return nil
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
	case r.skip && given("busy-exit-code"):
		return usagef("--skip and --busy-exit-code exclude each other: --skip means exit code 0")
	case r.maxHold.set && r.minHold.value > r.maxHold.value:
		return usagef("--min-hold %v is longer than --max-hold %v: the hold would have to end before it may", r.minHold.value, r.maxHold.value)
	case r.minHold.set && len(r.names) > 1:
		return usagef("--min-hold and --also exclude each other: a lock that is given back because another can't be had would stay taken")
	case len(r.label) > maxLabel || !utf8.ValidString(r.label):
		return usagef("--label: a label is valid UTF-8 of at most %d bytes", maxLabel)
	case r.verbose && r.quiet:
		return usagef("--verbose and --quiet exclude each other: give one of them")
	}
	return r.waitFlags.check()
}

func (r *runCommand) run(cmd *cobra.Command) error {
	if err := r.checkFlagConflicts(cmd); err != nil {
		return err
	}
	path, err := lookUp(r.argv[0])
	if err != nil {
		return err
	}
	r.sigs = make(chan os.Signal, 64)
	s, locker, held, outer, err := r.acquireLocks(cmd.Context())
	if s == nil || err != nil {
		return err
	}
	defer closeSoon(locker) // the locks are released before that
	return r.runUnderLock(s, held, path, outer)
}

// acquireLocks opens the store and acquires all locks. From its first request for a lock on, r.sigs
// receives the signals of this process. It returns the holds with those around this process. If
// the locks were taken and --skip was given, all results are nil.
func (r *runCommand) acquireLocks(ctx context.Context) (s *backend.Store, locker *snib.Locker, held holds,
	outer []outerHold, err error) {
	if outer, err = outerHolds(); err != nil {
		return nil, nil, nil, nil, err
	}
	r.err = newBackgroundWriter(r.err)
	acq := r.newAcquirer()
	if s, err = acq.connect(r.sigs); err != nil {
		return nil, nil, nil, nil, err
	}
	if locker, err = r.newLocker(ctx, s, acq, outer); err != nil {
		closeSoon(s)
		return nil, nil, nil, nil, err
	}
	notifySignals(r.sigs, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT,
		// Otherwise a reader of our messages that goes away would end this process,
		// and the command with it.
		syscall.SIGPIPE)
	notifySignals(r.sigs, otherSignals...)
	if held, err = acq.acquireNames(locker, s, r.names, r.any, r.sigs); err != nil {
		err = acq.explainRefusal(err, s, r.busyCode)
		closeSoon(locker)
		return nil, nil, nil, nil, err
	}
	if r.ttl.set && s.Info().Tenure == driver.TenureSession {
		r.verbosef("this store does not use --ttl %v: a lock outlives snib by the timeout of the session, which session-timeout in the URL sets", r.ttl.value)
	}
	r.maxHoldEnd = acq.firstGrant.Add(r.maxHold.value)
	for _, lock := range held {
		outer = append(outer, outerHold{s.URL, lock.Name(), lock.ID(), lock.Token()})
	}
	return s, locker, held, outer, nil
}

// newLocker returns a Locker for s, if s supports the flags and no outer hold is in the way.
func (r *runCommand) newLocker(ctx context.Context, s *backend.Store, acq *acquirer,
	outer []outerHold) (*snib.Locker, error) {
	if !r.ttl.set {
		r.ttl.value = defaultTTLFor(s.Info())
	}
	if err := r.checkSupport(s.Info()); err != nil {
		return nil, err
	}
	for _, name := range r.names {
		if err := refuseNested(ctx, s, name, outer); err != nil {
			return nil, err
		}
	}
	return snib.New(recordingDriver{s.Driver, acq}, r.options(acq)...)
}

// newAcquirer returns an acquirer for the lock of the command.
func (r *runCommand) newAcquirer() *acquirer {
	return &acquirer{
		app: r.app, waitFlags: r.waitFlags, noWait: r.asksOnce() || r.skip && !r.wait.set,
		skip: r.skip, names: r.names[:1],
		holder: driver.Holder{Label: labelWithUser(cmp.Or(r.label, filepath.Base(r.argv[0])))},
	}
}

func (r *runCommand) options(acq *acquirer) []snib.Option {
	opts := append(acq.options(r.ttl.value), snib.Tracing(r.renewals.trace(r.app)))
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
	case r.fair && info.Backend == "remote":
		return failf(exitConfig, "a lock service does not serve the waiters of all its replicas in order: drop --fair, or name its store with --url")
	case r.fair && !info.Fair:
		missing = "order of arrival: drop --fair"
	default:
		return nil
	}
	return failf(exitConfig, "a store of the kind %s has no %s, or choose another store with --url", info.Backend, missing)
}

// runUnderLock runs the command while it holds the locks, and then releases them.
func (r *runCommand) runUnderLock(s *backend.Store, held holds, path string, outer []outerHold) error {
	for _, lock := range held {
		r.verbosef("holding %s, token %d", printable(lock.Name()), lock.Token())
	}
	r.flush() // before the command prints anything
	g, err := r.start(s, held, path, outer)
	if err != nil {
		_ = r.release(held) // it has reported its failures
		return err
	}
	end := g.supervise()
	lost := r.release(held)
	if len(lost) > 0 && end.code != exitLost {
		r.messagef("lost %s: by force, or its lease was over, before its release; the command had ended by itself", lost)
		end.code = exitLost
	}
	if end.code != exitLost {
		r.flush()
		end.raiseSIGINT()
	}
	return silentExit(end.code)
}

// release releases the locks, the last one first, and returns those that were lost. A failure is
// worth a warning, but does not change the exit code of the command.
func (r *runCommand) release(held holds) (lost holds) {
	var wg sync.WaitGroup
	errs := make([]error, len(held))
	for i, lock := range held {
		wg.Go(func() { errs[i] = r.releaseLock(lock) })
	}
	wg.Wait()
	for i, lock := range held {
		if errors.Is(errs[i], snib.ErrLost) {
			lost = append(lost, lock)
		}
	}
	return lost
}

// releaseLock releases one lock, and reports a failure.
func (r *runCommand) releaseLock(lock *snib.Lock) error {
	left, began := lock.Validity(), time.Now()
	err := releaseSoon(lock)
	name := printable(lock.Name())
	const warning = "warning: %s could not be released"
	switch {
	case err == nil:
		r.verbosef("released %s", name)
	case errors.Is(err, snib.ErrLost):
	case errors.Is(err, errUnreleased) && left == 0: // the loss was reported
	case errors.Is(err, errUnreleased) && time.Since(began) >= left:
		r.messagef(warning+", and its lease is over by now: %s", name, noAnswer)
	default:
		why := strings.TrimPrefix(unavailableText(err), name+": ")
		r.messagef(warning+": %s; it lapses by itself within %s", name, why, short(r.ttl.value))
	}
	return err
}

func (r *runCommand) start(s *backend.Store, held holds, path string, outer []outerHold) (*supervisor, error) {
	env, err := r.environ(held, outer)
	if err != nil {
		return nil, err
	}
	p := child.Program{Env: env}
	for _, lock := range held {
		file, err := s.Inherit(lock.Context(), lock.Name(), lock.ID())
		if err != nil {
			return nil, failf(exitUnavailable, "the command can't inherit the lock %s: %w", printable(lock.Name()), err)
		}
		if file != nil {
			p.Keep = append(p.Keep, file)
		}
	}
	// Until now Ctrl-Z stopped snib as any other program. From the command's first moment it must not
	// stop snib alone, and so keep it from renewing.
	notifySignals(r.sigs, stopSignals...)
	var kid *child.Child
	err = startProgram(path, r.argv, func(path string, argv []string) (err error) {
		// We may have stood still since the grant, and somebody else may hold a lock by now.
		if held.validity() <= 0 {
			return failf(exitLost, "lost %s: %s; the command was not started", held, r.lossCause(held))
		}
		p.Path, p.Args = path, argv
		kid, err = child.Start(p)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r.newSupervisor(held, kid), nil
}

// startProgram starts the command argv, whose file is path, by start.
func startProgram(path string, argv []string, start func(path string, argv []string) error) error {
	err := start(path, argv)
	if errors.Is(err, syscall.ENOEXEC) { // the shell runs a script that names no interpreter, as with execvp
		err = start("/bin/sh", append([]string{"sh", path}, argv[1:]...))
	}
	if err == nil || errors.As(err, new(*exitError)) {
		return err
	}
	return failf(exitNotExecutable, "%s can't be run: %w", printable(path), err)
}

// lockOf returns the hold on NAME, among those that the command needs, or the only one.
func (r *runCommand) lockOf(held holds) *snib.Lock {
	if r.any {
		return held[0]
	}
	return held[slices.Index(r.names, r.name)]
}

// environ returns the environment of the command.
func (r *runCommand) environ(held holds, outer []outerHold) ([]string, error) {
	list, err := encode(outer, "")
	if err != nil {
		return nil, err
	}
	lock := r.lockOf(held)
	return environ(
		"SNIB_NAME="+lock.Name(),
		"SNIB_TOKEN="+strconv.FormatUint(lock.Token(), 10),
		idVar+"="+lock.ID(),
		heldVar+"="+string(list),
	), nil
}

// pathSeparators are the characters that separate the folders in the path of a command.
const pathSeparators = "/" + string(filepath.Separator)

// lookUp finds the file to run, as execvp(3) does.
func lookUp(command string) (string, error) {
	path, err := exec.LookPath(command)
	switch {
	case err == nil, errors.Is(err, exec.ErrDot) && findsInCurrentFolder:
		return path, nil
	case errors.Is(err, exec.ErrDot):
		return "", failf(exitNotFound, "%s is not in PATH, only in the current folder; if you mean that one, write .%c%[1]s", printable(command), filepath.Separator)
	case errors.Is(err, exec.ErrNotFound) && !strings.ContainsAny(command, pathSeparators):
		if file := findInPath(command); file != "" {
			return "", failf(exitNotExecutable, "%s "+notExecutable, printable(file))
		}
		return "", failf(exitNotFound, "%s: command not found; is it in PATH?", printable(command))
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound):
		return "", failf(exitNotFound, "%s: no such file", printable(command))
	case errors.Is(err, syscall.EISDIR):
		return "", failf(exitNotExecutable, "%s is a folder and not a command", printable(command))
	}
	return "", failf(exitNotExecutable, "%s "+notExecutable, printable(command))
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
