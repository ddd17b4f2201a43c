// Package cli implements the command line of snib: the arguments, actions, output and
// exit codes of each command.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock/wire"
)

// urlVar is the environment variable that names the store if --url does not.
const urlVar = "SNIB_URL"

// An app holds what all commands share.
type app struct {
	out io.Writer // results; an error says that they can't be printed
	err io.Writer // everything else

	args []string // of this process

	url     string
	urlFlag *pflag.Flag // of --url
	verbose bool
	quiet   bool

	config    *config // nil until loadConfig
	unaudited error   // why a line of the audit log could not be written
}

// Main runs the program with the arguments args, which follow the program's name in os.Args,
// and returns its exit code. It overwrites passwords in os.Args.
func Main(args []string) (code int) {
	args = hideSecrets(args)
	out := &resultWriter{out: os.Stdout}
	a := &app{out: out, err: os.Stderr, args: args}
	defer a.flush()
	defer func() {
		if r := recover(); r != nil {
			a.messagef("this is a bug in snib, please report it: %v", r)
			code = exitBug
		}
	}()
	root := a.newRootCommand()
	root.SetArgs(args)
	cmd, err := root.ExecuteC()
	if err == nil && !cmd.Runnable() { // a topic of the help, whose arguments cobra does not check
		err = takes(cobra.NoArgs)(cmd, cmd.Flags().Args())
	}
	err = cmp.Or(err, out.err, a.unaudited)
	if err != nil && !isSilent(err) {
		a.messagef("%s", message(err))
	}
	return exitCode(err)
}

// messagef prints one line for the user on standard error, even with --quiet.
func (a *app) messagef(format string, args ...any) {
	// If standard error is closed, the user can't be told.
	_, _ = fmt.Fprintf(a.err, "snib: %s\n", oneLine(a.hidePasswords(fmt.Sprintf(format, args...))))
}

// infof prints a line unless --quiet is set.
func (a *app) infof(format string, args ...any) {
	if !a.quiet {
		a.messagef(format, args...)
	}
}

// verbosef prints a line if --verbose is set.
func (a *app) verbosef(format string, args ...any) {
	if a.verbose {
		a.messagef(format, args...)
	}
}

func (a *app) newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:                "snib",
		Short:              "run programs under a lock; see and free locks",
		Long:               rootNotes,
		Example:            rootExamples,
		SilenceErrors:      true,
		SilenceUsage:       true,
		DisableSuggestions: true, // they are on lines of their own
		Args:               a.unknownCommand,
	}
	version := root.Flags().BoolP("version", "V", false, "print the version of this program")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *version {
			return a.printf("snib %s, %s, %s/%s\n", wire.ProgramVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		}
		return cmd.Help()
	}
	cobra.EnableCommandSorting = false // list commands in the order below, the main one first
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		flag, _ := errors.AsType[*pflag.InvalidValueError](err)
		if errors.As(err, new(*strconv.NumError)) {
			err = fmt.Errorf("--%s %s: it is no whole number, or too great a one", flag.GetFlag().Name, printable(flag.GetValue()))
		}
		return usagef("%w; see %s --help", err, cmd.CommandPath())
	})
	root.PersistentPreRunE = refuseEmptyFlags
	flags := root.PersistentFlags()
	flags.StringVarP(&a.url, "url", "u", "",
		"`URL` of the store (default: $"+urlVar+", the configuration, or else the SQLite file that -v shows)")
	a.urlFlag = flags.Lookup("url")
	if err := root.RegisterFlagCompletionFunc("url", a.completeURL); err != nil {
		panic(err) // the flag was added just now
	}
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "print what snib does, and in which store")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "print errors only")
	root.AddCommand(
		a.newRunCommand(), a.newLsCommand(), a.newShowCommand(), a.newWaitCommand(),
		a.newHoldCommand(), a.newLockCommand(), a.newUnlockCommand(), a.newReleaseCommand(), a.newFenceCommand(),
		a.newSchemaCommand(), a.newLeaksCommand(), a.newWatchCommand(), a.newExportCommand(), a.newServeCommand(),
		a.newDoctorCommand(), a.newRedisCommand(), a.newRedlockCommand(),
		a.newCompletionCommand(),
	)
	for _, cmd := range root.Commands() {
		cmd.Flags().SortFlags = false // the most important first
	}
	a.setUpHelp(root)
	return root
}

// refuseEmptyFlags refuses a flag with an empty value, as that of a variable which was lost: it
// does not mean that the flag was left out. [app.storeURL] judges --url.
func refuseEmptyFlags(cmd *cobra.Command, _ []string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.String() == "" && f.Name != "url" {
			err = usagef("--%s is empty: give it a value, or leave it out", f.Name)
		}
	})
	return err
}

// unknownCommand reports an unknown subcommand.
func (a *app) unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef("there is no command %q; see snib help", args[0])
}

// takes returns a check of arguments that fails with the exit code of wrong usage.
func takes(checks ...cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cobra.MatchAll(checks...)(cmd, args); err != nil {
			return usagef("%w; usage: %s", err, cmd.UseLine())
		}
		return nil
	}
}

// takesAction is takes for a command whose first argument is one of its ValidArgs, and whose second
// one is the URL of a store.
func takesAction(cmd *cobra.Command, args []string) error {
	first := func(cmd *cobra.Command, args []string) error { return cobra.OnlyValidArgs(cmd, args[:1]) }
	return takes(cobra.RangeArgs(1, 2), first)(cmd, args)
}

// oneName checks that a command gets one argument, which is a valid lock name.
func oneName(cmd *cobra.Command, args []string) error {
	if err := takes(cobra.ExactArgs(1))(cmd, args); err != nil {
		return err
	}
	if err := refuseURL(cmd, args[0], false); err != nil {
		return err
	}
	return driver.CheckName(args[0])
}

// oneDisplayedName is oneName for a command that only looks at a lock.
func oneDisplayedName(cmd *cobra.Command, args []string) error {
	return cmp.Or(oneName(cmd, args), oneDisplayed(cmd, args))
}

// oneDisplayed checks that a command that only looks gets at most one argument, with which the name
// of a lock can begin.
func oneDisplayed(cmd *cobra.Command, args []string) error {
	if err := takes(cobra.MaximumNArgs(1))(cmd, args); err != nil || len(args) == 0 || args[0] == "" {
		return err
	}
	return cmp.Or(refuseURL(cmd, args[0], true), driver.CheckName(args[0]))
}

// refuseURL refuses the URL of a store where the name of a lock belongs: its user would look at
// another store, or lock there. A lock may have such a name if --url names the store, too. The name
// of a lock that is taken may be a URL of HTTP, the usual name of what is fetched under it.
func refuseURL(cmd *cobra.Command, name string, alsoHTTP bool) error {
	if !backend.IsURL(name) || cmd.Flags().Changed("url") || !alsoHTTP && strings.HasPrefix(name, "http") {
		return nil
	}
	return usagef("the argument is the URL of a store, and not the name of a lock: give it with --url")
}

// open opens the store. To look at a store that does not exist, it returns an empty one.
func (a *app) open(purpose backend.Purpose) (*backend.Store, error) {
	url, err := a.storeURL(a.url)
	if err != nil {
		return nil, err
	}
	s, err := backend.Open(context.Background(), url, purpose)
	if err != nil {
		return nil, err
	}
	a.verbosef("store %s", s.URL)
	if purpose != backend.Look {
		for _, w := range s.Info().Unmet {
			a.verbosef("warning: %s", w)
		}
	}
	return s, nil
}

// withStore opens the store, and calls fn with it.
func (a *app) withStore(purpose backend.Purpose, fn func(ctx context.Context, s *backend.Store) error) error {
	s, err := a.open(purpose)
	if err != nil {
		return err
	}
	defer closeSoon(s)
	return fn(context.Background(), s)
}

// within calls do, and reports whether it has returned within d. If not, do goes on by itself.
func within(d time.Duration, do func()) bool {
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

// closeSoon closes c, but waits no longer than feedbackInterval. If the store hangs, the end
// of the process cleans up.
func closeSoon(c io.Closer) {
	within(feedbackInterval, func() { _ = c.Close() }) // the result does not depend on it
}
