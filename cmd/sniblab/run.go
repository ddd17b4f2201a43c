package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/sniblab/internal/demo"
	"github.com/sniblock/snib/cmd/sniblab/internal/peers"
	"github.com/sniblock/snib/cmd/sniblab/internal/servers"
	"github.com/sniblock/snib/cmd/sniblab/internal/target"
	"github.com/sniblock/snib/cmd/sniblab/internal/trial"
)

// A runCommand is one call of "sniblab run".
type runCommand struct {
	out, errs  io.Writer
	names      []string // of targets
	faults     []string
	store      string
	hasStore   bool // --store was given
	time       time.Duration
	seed       uint64
	noControls bool
	json       bool
}

const runNotes = `Run three clients of each target against one lock, while processes, the server
and the network fail. The lab records when each client believed that it held
the lock, and judges that record. It starts servers of its own, and touches no
store of yours. It needs Linux, and the programs of the servers.

First it runs broken patterns, the controls. If one of them does not get the
verdict that it must get, the run is void, and exits 65.

A target is a name from "sniblab list", or a program, with a slash or a space
in it. docs/lab.md says what such a program must do. --store names what the lab
starts for it: a Redis server, the path of a file, or nothing.

Each target has trials of some seconds, for about the time of --for. The faults
of the first trial follow from --seed, those of the second from the number
after it, and so on. For a rejected target, the lab prints the command that
repeats the decisive trial.

Exit code 1 means that a target was rejected. Ctrl-C ends all that was started.`

const runExamples = `  sniblab run                        controls, then snib on its stores
  sniblab run -t ./mylock.py         a program of yours, on a Redis
  sniblab run -t no-expiry --no-controls`

func newRunCommand() *cobra.Command {
	l := &runCommand{}
	cmd := &cobra.Command{Use: "run", Short: "run locks under faults and judge them", Long: runNotes, Example: runExamples, Args: cobra.NoArgs}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVarP(&l.names, "target", "t", nil, "run `NAME` of the list, or a program; repeatable (default: those of snib)")
	f.StringVar(&l.store, "store", string(trial.Stores()[0]), "the `KIND` of store that a program gets: see sniblab list")
	f.StringSliceVar(&l.faults, "fault", nil, "only these `FAULTS` (default: all that fit)")
	f.DurationVar(&l.time, "for", 20*time.Second, "how long to run each target")
	f.Uint64Var(&l.seed, "seed", 0, "the seed of the faults (default: a new one)")
	f.BoolVar(&l.noControls, "no-controls", false, "don't check first that the lab rejects broken locks")
	f.BoolVar(&l.json, "json", false, "print the verdicts as lines of JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		// A target that has ended breaks the pipe to it, which must not end us. A broken standard
		// output is an error of its Write.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		// Later signals end the process although its output may block. Programs such as timeout
		// send the same signal twice at once.
		context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
		l.out, l.errs = cmd.OutOrStdout(), cmd.ErrOrStderr()
		l.hasStore = cmd.Flags().Changed("store")
		return l.run(ctx)
	}
	return cmd
}

// infof prints a line on standard error.
func (l *runCommand) infof(format string, args ...any) {
	fmt.Fprintln(l.errs, "sniblab: "+oneLine(fmt.Sprintf(format, args...)))
}

// chosen returns the targets that the flags name.
func (l *runCommand) chosen() ([]trial.Target, error) {
	if len(l.names) == 0 {
		return ownInstalled(), nil
	}
	var all []trial.Target
	known := slices.Concat(own(), controls())
	for _, name := range l.names {
		i := slices.IndexFunc(known, func(c trial.Target) bool { return c.Name == name })
		switch {
		case i >= 0:
			all = append(all, known[i])
		case name == ownGroup:
			all = append(all, ownInstalled()...)
		case len(peers.Named(name)) > 0:
			found, err := l.chosenPeers(name)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		case isProgram(name):
			if err := checkProgram(name); err != nil {
				return nil, err
			}
			all = append(all, trial.Target{
				Name: name, Title: "a program", Store: trial.StoreKind(l.store), Command: []string{"sh", "-c", name}, LibcClock: true,
			})
		default:
			return nil, usagef("there is no target %q: see sniblab list, or give a program with its path, such as ./%[1]s", name)
		}
	}
	return all, nil
}

// isProgram reports whether the name of a target is a program.
func isProgram(name string) bool { return strings.ContainsAny(name, "/ ") }

// checkProgram reports that a program which is named by its path can't be run. Whatever is no plain
// path is left to the shell.
func checkProgram(name string) error {
	path, _, _ := strings.Cut(name, " ")
	if !strings.Contains(path, "/") || shellQuote(path) != path {
		return nil
	}
	_, err := exec.LookPath(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return usagef("%s is not executable: chmod +x it, or name its interpreter, such as python3 %[1]s", path)
	case err != nil:
		return usagef("there is no program %s: give the path of a file, or see sniblab list", path)
	}
	return nil
}

// checkFlags checks what the flags about faults say, and that they fit together.
func (l *runCommand) checkFlags() error {
	if !slices.Contains(trial.Stores(), trial.StoreKind(l.store)) {
		return usagef("--store: there is no store %q; there are %s", l.store,
			strings.Join(names(trial.Stores(), func(k trial.StoreKind) string { return string(k) }), ", "))
	}
	if l.time <= 0 {
		return usagef("--for: %v is not positive", l.time)
	}
	all := names(servers.Faults(), func(f servers.Fault) string { return f.Name })
	for _, name := range l.faults {
		if !slices.Contains(all, name) {
			return usagef("--fault: there is no fault %q; there are %s", name, strings.Join(all, ", "))
		}
	}
	return nil
}

// fitting returns the targets that can have the faults of the flags. It leaves out those of a
// group that can't, as long as one is left.
func (l *runCommand) fitting(chosen []trial.Target) ([]trial.Target, error) {
	var fit []trial.Target
	var errs []error
	for _, c := range chosen {
		_, err := trial.FaultsFor(c, l.faults)
		switch {
		case err == nil:
			fit = append(fit, c)
		case slices.Contains(l.names, c.Name):
			return nil, usagef("%w", err)
		default:
			errs = append(errs, err)
		}
	}
	if len(fit) == 0 && len(errs) > 0 {
		return nil, usagef("%w", errs[0])
	}
	for _, err := range errs {
		l.infof("left out: %s", message(err))
	}
	return fit, nil
}

// prepare returns what to run, or the error that would otherwise end the run after minutes.
func (l *runCommand) prepare() (first, chosen []trial.Target, err error) {
	if err := l.checkFlags(); err != nil {
		return nil, nil, err
	}
	if chosen, err = l.chosen(); err != nil {
		return nil, nil, err
	}
	if l.hasStore && !slices.ContainsFunc(l.names, isProgram) {
		return nil, nil, usagef("--store is for programs: a target of the list has its own store; see sniblab list")
	}
	if chosen, err = l.fitting(chosen); err != nil {
		return nil, nil, err
	}
	if !l.noControls {
		first = trial.ControlsFor(controls(), chosen)
	}
	for _, c := range slices.Concat(first, chosen) {
		if err := missingServer(c, c.Store.Missing()); err != nil {
			return nil, nil, err
		}
	}
	for _, c := range own() {
		if err := c.Store.Missing(); len(l.names) == 0 && err != nil {
			l.infof("%s is left out: %s", c.Name, message(err))
		}
	}
	return first, chosen, nil
}

// run runs the controls, and then the targets.
func (l *runCommand) run(ctx context.Context) error {
	first, chosen, err := l.prepare()
	if err != nil {
		return err
	}
	if err := l.installPeers(ctx, chosen); err != nil {
		return err
	}
	if l.seed == 0 {
		l.seed = rand.Uint64N(1<<32) + 1
	}
	outcomes, err := l.part(ctx, first)
	void := slices.ContainsFunc(outcomes, func(o trial.Outcome) bool { return !o.AsExpected() })
	if err == nil && !void {
		var judged []trial.Outcome
		judged, err = l.part(ctx, chosen)
		outcomes = append(outcomes, judged...)
	}
	if err != nil {
		return err
	}
	return l.conclude(outcomes, void)
}

// part runs some targets, and prints each outcome.
func (l *runCommand) part(ctx context.Context, all []trial.Target) ([]trial.Outcome, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var failed error
	opts := trial.Options{Targets: all, Faults: l.faults, For: l.time, Seed: l.seed}
	outcomes, err := trial.Run(ctx, opts, func(o trial.Outcome) {
		if err := l.show(o); err != nil && failed == nil {
			failed = err
			cancel(err)
		}
	})
	switch {
	case failed != nil:
		return nil, printed(failed)
	case err != nil:
		l.infof("interrupted")
		return nil, silentExit(exitSignal + int(syscall.SIGINT))
	}
	for _, o := range outcomes {
		if err := missingServer(o.Target, o.Err); err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

// missingServer returns the error for a target whose server is not installed, or nil if err
// is none about that.
func missingServer(c trial.Target, err error) error {
	if missing, ok := errors.AsType[*demo.MissingError](err); ok {
		return failf(exitUnavailable, "%s: %s", c.Name, installHint(missing))
	}
	return nil
}

// show prints an outcome.
func (l *runCommand) show(o trial.Outcome) error {
	if l.json {
		enc := json.NewEncoder(l.out)
		enc.SetEscapeHTML(false)
		return enc.Encode(l.toVerdict(o))
	}
	text := "accepted: " + o.Text()
	switch {
	case o.Err != nil:
		text = "not judged: " + message(o.Err)
	case o.Rejected():
		text = "rejected: " + o.Text()
	}
	faults := 0
	for _, count := range o.Faults {
		faults += count
	}
	line := fmt.Sprintf("%-22s %-50s %5d acquired, %3d faults, %v", o.Target.Name, text, o.Acquired, faults, o.Took.Round(time.Second))
	if o.Late != nil {
		line += "; it was run no further: " + message(o.Late)
	}
	if all := o.LastErrors(); len(all) > 0 && o.Err == nil { // the text of Err has it
		line += "; its last error: " + oneLine(all[len(all)-1])
	}
	if o.Rejected() && !o.Target.IsControl() {
		line += "\n  " + strings.TrimSpace(o.Evidence.String()+" Once more: "+l.repeat(o))
	}
	_, err := fmt.Fprintln(l.out, line)
	return err
}

// conclude returns the error for the worst that was found.
func (l *runCommand) conclude(outcomes []trial.Outcome, void bool) error {
	for _, o := range outcomes {
		switch {
		case void && !o.AsExpected() && o.Err != nil:
			return failf(exitVoid, "the run is void: control %s was not judged: %w", o.Target.Name, o.Err)
		case void && !o.AsExpected():
			return failf(exitVoid, "the run is void: control %s got the verdict %s, and not %s", o.Target.Name, o.Verdict(), o.Target.Want)
		case o.Err != nil:
			return failf(exitOf(o.Err), "%w", o.Err)
		}
	}
	if slices.ContainsFunc(outcomes, func(o trial.Outcome) bool {
		return o.Rejected() && (!o.Target.IsControl() || l.noControls)
	}) {
		return silentExit(exitRejected)
	}
	return nil
}

// exitOf returns the exit code for the error of a target that was not judged.
func exitOf(err error) int {
	if _, ok := errors.AsType[*target.Error](err); ok {
		return exitProtocol
	}
	return exitUnavailable // a server of the lab, and no fault of the target
}

// repeat returns the command that runs the decisive trial of an outcome again.
func (l *runCommand) repeat(o trial.Outcome) string {
	text := fmt.Sprintf("sniblab run --no-controls --target %s --seed %d --for 1ms", shellQuote(o.Target.Name), o.Seed)
	if isProgram(o.Target.Name) {
		text += " --store " + l.store
	}
	if len(l.faults) > 0 {
		text += " --fault " + strings.Join(l.faults, ",")
	}
	return text
}
