package cli

import (
	"cmp"
	"context"
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

// leastTTL is the shortest TTL that a process can keep up with, on a busy machine.
const leastTTL = 100 * time.Millisecond

const runUsage = "usage: snib run NAME -- COMMAND [ARG...]"

// A run is one "snib run".
type run struct {
	*app
	ttl, wait, minHold, maxHold, timeout, killAfter *duration

	try, skip, shared, fair bool
	busyCode, slots         int
	onLost                  *choice

	name     string
	owner    string
	argv     []string
	sigs     chan os.Signal
	renewals renewals
}

func (a *app) runCommand() *cobra.Command {
	r := &run{app: a, owner: rand.Text()}
	cmd := &cobra.Command{
		Use:               "run NAME [flags] -- COMMAND [ARG...]",
		Short:             "run a command while holding a lock",
		Example:           runExamples,
		Long:              runNotes,
		Args:              r.arguments,
		RunE:              func(cmd *cobra.Command, _ []string) error { return r.run(cmd) },
		ValidArgsFunction: r.complete,
	}
	f := cmd.Flags()
	f.SortFlags = false
	r.wait = addDuration(cmd, "wait", "w", "wait at most this long for the lock (default: for ever)", 0, 0)
	f.BoolVarP(&r.try, "try", "n", false, "don't wait: if the lock is taken, exit 75")
	f.BoolVar(&r.skip, "skip", false, "if the lock is taken, exit 0 and say nothing (for cron); doesn't wait without -w")
	f.IntVarP(&r.busyCode, "busy-exit-code", "E", exitBusy, "exit code `N` when the lock is taken")
	f.BoolVarP(&r.shared, "shared", "s", false, "share the lock with others that share it (the read side)")
	f.IntVar(&r.slots, "slots", 0, "let `N` hold it at once; all must give the same number")
	f.BoolVar(&r.fair, "fair", false, "serve all who wait with --fair strictly in order of arrival")
	r.ttl = addDuration(cmd, "ttl", "", "how long the lock outlives us if we die or hang", 30*time.Second, leastTTL)
	r.minHold = addDuration(cmd, "min-hold", "", "keep the lock taken for this long, also if the command is faster", 0, 1)
	r.maxHold = addDuration(cmd, "max-hold", "", "give the lock up after this long: end the command and exit 79", 0, 1)
	r.timeout = addDuration(cmd, "timeout", "", "end the command after this long and exit 124", 0, 1)
	r.killAfter = addDuration(cmd, "kill-after", "k", "how long a command has between TERM and KILL", 5*time.Second, 0)
	r.onLost = addChoice(cmd, "on-lost", "", "what happens to the command when the lock is lost", "kill", "continue")
	return cmd
}

// arguments checks what stands before and after the "--".
func (r *run) arguments(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	if dash == 0 && len(args) > 1 && args[1] == "--" { // a name that begins with a dash
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

// conflicts reports flags that contradict one another.
func (r *run) conflicts(cmd *cobra.Command) error {
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
		return usagef("--min-hold %v is longer than --max-hold %v: the lock would be given up before it may be", r.minHold.value, r.maxHold.value)
	case r.verbose && r.quiet:
		return usagef("--verbose and --quiet exclude each other: give one of them")
	}
	return nil
}

// openForWait opens the store. If we may wait for the lock, we also wait for a store that can't be reached at the moment, no longer.
func (r *run) openForWait(ctx context.Context) (*backend.Store, error) {
	if r.try || r.skip || r.wait.set && r.wait.value <= 0 {
		return r.open(true)
	}
	if r.wait.set {
		inner, cancel := context.WithTimeout(ctx, r.wait.value)
		defer cancel()
		ctx = inner
	}
	return r.openPatiently(ctx)
}

func (r *run) run(cmd *cobra.Command) error {
	if err := r.conflicts(cmd); err != nil {
		return err
	}
	path, err := lookUp(r.argv[0])
	if err != nil {
		return err
	}
	around, err := heldAround()
	if err != nil {
		return err
	}
	s, err := r.openForWait(cmd.Context())
	if err != nil {
		return err
	}
	locker, err := snib.New(s.Driver, r.options()...)
	if err != nil {
		_ = s.Close()
		return err
	}
	defer locker.Close() //nolint:errcheck // the lock was released before; what is left goes with the process
	if err := checkNested(cmd.Context(), s, r.name, around); err != nil {
		return err
	}
	r.sigs = make(chan os.Signal, 64)
	catch(r.sigs, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGWINCH, syscall.SIGCONT,
		syscall.SIGPIPE) // a reader of our messages that goes away would else end us, and with us the command
	lock, err := r.acquire(locker, s)
	if err != nil {
		return r.busy(err, s)
	}
	return r.guarded(lock, path, append(around, held{s.URL, r.name, lock.Owner()}))
}

func (r *run) options() []snib.Option {
	opts := []snib.Option{
		snib.TTL(r.ttl.value), snib.Owner(r.owner), snib.Label(filepath.Base(r.argv[0])), snib.Inheritable(),
		snib.Tracing(r.renewals.trace(r.app)),
	}
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
	noWait := r.try || r.wait.set && r.wait.value == 0 || r.skip && !r.wait.set
	when(noWait, snib.NoWait())
	when(!noWait && r.wait.set, snib.MaxWait(r.wait.value))
	return opts
}

// request is what we ask the store for, as far as it decides whether we get it.
func (r *run) request() driver.Request {
	return driver.Request{Name: r.name, TTL: r.ttl.value, Shared: r.shared, Slots: r.slots}
}

// busy decides what becomes of a lock that we did not get.
func (r *run) busy(err error, s *backend.Store) error {
	switch {
	case errors.Is(err, snib.ErrLost): // before the command began, so it isn't exit code 79
		return fail(exitUnavailable, "%s; is the store too slow for --ttl %v?", message(err), r.ttl)
	case errors.Is(err, snib.ErrInvalid): // name and flags were checked: it is the store's place that can't be used
		return fail(exitConfig, "%s", message(err))
	case !errors.Is(err, snib.ErrHeld):
		return err
	}
	text, failed := refused(err, r.wait.set, s, r.request())
	switch {
	case failed != nil:
		return failed
	case r.skip:
		r.note("%s is taken: skipped", printable(r.name))
		return nil
	case r.quiet:
		return silent(r.busyCode)
	}
	return fail(r.busyCode, "%s", text)
}

// guarded runs the command under the lock, and releases it.
func (r *run) guarded(lock *snib.Lock, path string, holds []held) error {
	r.note("holding %s, token %d", printable(r.name), lock.Token())
	g, err := r.start(lock, path, holds)
	if err != nil {
		_ = r.release(lock) // told already
		return err
	}
	end := g.watch()
	err = r.release(lock)
	if errors.Is(err, snib.ErrLost) && end.code != exitLost {
		r.say("%s", message(err))
		end.code = exitLost
	}
	if end.code != exitLost {
		end.raise()
	}
	return silent(end.code)
}

// release frees the lock. That it did not work is worth a warning, but says nothing about the command. It takes no longer than the
// lease lasts, as there is nothing left to release then; where it is over already, little longer than an answer needs.
func (r *run) release(lock *snib.Lock) error {
	left := lock.Validity()
	over := time.After(cmp.Or(left, patience))
	done := make(chan error, 1)
	go func() { done <- lock.Release() }()
	select {
	case err := <-done:
		switch {
		case err == nil:
			r.note("released %s", printable(r.name))
		case !errors.Is(err, snib.ErrLost):
			r.say("warning: %s; the lock lapses by itself within %s", message(err), short(r.ttl.value))
		}
		return err
	case <-over:
		if left == 0 {
			return nil // the loss was told
		}
		r.say("warning: %s could not be released, and its lease is over by now: %s", printable(r.name), noAnswer)
		return nil
	}
}

func (r *run) start(lock *snib.Lock, path string, holds []held) (*guard, error) {
	env, err := r.environ(lock, holds)
	if err != nil {
		return nil, err
	}
	p := child.Program{Path: path, Args: r.argv, Env: env, Keep: lock.File()}
	kid, err := child.Start(p)
	if errors.Is(err, syscall.ENOEXEC) { // a script that names no interpreter is the shell's, as with execvp
		p.Path, p.Args = "/bin/sh", append([]string{"sh", path}, r.argv[1:]...)
		kid, err = child.Start(p)
	}
	if err != nil {
		return nil, fail(exitNotExecutable, "%s can't be run: %w", printable(path), err)
	}
	return r.guard(lock, kid), nil
}

// environ is the child's environment.
func (r *run) environ(lock *snib.Lock, holds []held) ([]string, error) {
	list, err := marshal(holds)
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
	case err == nil, errors.Is(err, exec.ErrDot): // who has "." in PATH means it
		return path, nil
	case errors.Is(err, exec.ErrNotFound) && !strings.Contains(command, "/"):
		if file := inPath(command); file != "" {
			return "", fail(exitNotExecutable, "%s is not executable; chmod +x it?", printable(file))
		}
		return "", fail(exitNotFound, "%s: command not found; is it in PATH?", printable(command))
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound):
		return "", fail(exitNotFound, "%s: no such file", printable(command))
	case errors.Is(err, syscall.EISDIR):
		return "", fail(exitNotExecutable, "%s is a folder and not a command", printable(command))
	}
	return "", fail(exitNotExecutable, "%s is not executable; chmod +x it?", printable(command))
}

// inPath finds a file named command in PATH, executable or not.
func inPath(command string) string {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		file := filepath.Join(dir, command)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && command != "" {
			return file
		}
	}
	return ""
}

// catch has signals sent to sigs. What our parent had us ignore stays ignored, for the command as well: that is how
// nohup works.
func catch(sigs chan<- os.Signal, signals ...syscall.Signal) {
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(sigs, s)
		}
	}
}

// complete offers the names of locks, and leaves the command after that to the shell.
func (r *run) complete(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return r.completeName(cmd, args, prefix)
}
