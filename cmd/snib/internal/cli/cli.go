// Package cli is the command line of snib: what each command takes, does, prints and exits with.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

// urlVar is the variable that names the store when --url does not.
const urlVar = "SNIB_URL"

// An app is what all commands share.
type app struct {
	out io.Writer // results
	err io.Writer // all else

	url     string
	verbose bool
	quiet   bool
}

// Main runs the program with what os.Args has behind its name, and returns its exit code. Passwords in os.Args are overwritten.
func Main(args []string) (code int) {
	args = hide(args)
	a := &app{out: os.Stdout, err: os.Stderr}
	defer func() {
		if r := recover(); r != nil {
			a.say("this is a bug in snib, please report it: %v", r)
			code = exitBug
		}
	}()
	root := a.root()
	root.SetArgs(args)
	err := root.Execute()
	if err != nil && !isSilent(err) {
		a.say("%s", message(err))
	}
	return exitCode(err)
}

// say prints one line for the user.
func (a *app) say(format string, args ...any) {
	// There is nobody left to be told that standard error is gone.
	_, _ = fmt.Fprintf(a.err, "snib: %s\n", oneLine(fmt.Sprintf(format, args...)))
}

// tell prints a line unless --quiet.
func (a *app) tell(format string, args ...any) {
	if !a.quiet {
		a.say(format, args...)
	}
}

// note prints a line with --verbose.
func (a *app) note(format string, args ...any) {
	if a.verbose {
		a.say(format, args...)
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:                "snib",
		Short:              "run programs under a lock; see and free locks",
		SilenceErrors:      true,
		SilenceUsage:       true,
		DisableSuggestions: true, // ours fit on the line
		Args:               a.unknownCommand,
	}
	version := root.Flags().BoolP("version", "V", false, "tell the version of this program")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *version {
			return a.version("table")
		}
		return cmd.Help()
	}
	cobra.EnableCommandSorting = false // in the help the main one comes first
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see %s --help", err, cmd.CommandPath())
	})
	// Both by code: cobra's templates would bring in package text/template, which doubles the size of the binary.
	root.SetHelpFunc(a.help)
	root.SetUsageFunc(func(cmd *cobra.Command) error { a.help(cmd, nil); return nil })
	flags := root.PersistentFlags()
	flags.StringVarP(&a.url, "url", "u", "",
		"`URL` of where the locks are (default: $"+urlVar+", or else the SQLite file that -v shows)")
	if err := root.RegisterFlagCompletionFunc("url", completeURL); err != nil {
		panic(err) // the flag was added just now
	}
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "say what is done, and where")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "say nothing but errors")
	root.AddCommand(
		a.runCommand(), a.lsCommand(), a.showCommand(), a.waitCommand(),
		a.lockCommand(), a.unlockCommand(), a.releaseCommand(), a.fenceCommand(), a.schemaCommand(),
		a.countCommand(), a.leaksCommand(), a.watchCommand(), a.topCommand(), a.doctorCommand(), a.explainCommand(), a.benchCommand(), a.redisCommand(), a.redlockCommand(),
		a.completionCommand(), a.versionCommand(),
	)
	root.SetHelpCommand(a.helpCommand())
	root.InitDefaultHelpFlag()
	return root
}

// unknownCommand is reached with what is no command of ours.
func (a *app) unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		return usagef("there is no command %q; did you mean %s?", args[0], strings.Join(like, " or "))
	}
	return usagef("there is no command %q; see snib help", args[0])
}

// oneName is the argument check of commands that take the name of a lock.
func oneName(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("%d arguments were given, it takes one: usage: %s", len(args), usageLine(cmd))
	}
	return driver.CheckName(args[0])
}

// none is the argument check of commands that take no argument.
func none(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%q is one argument too many: usage: %s", args[0], usageLine(cmd))
	}
	return nil
}

// open opens the store. With create unset a store that does not exist is an empty one, and is not made.
func (a *app) open(create bool) (*backend.Store, error) {
	url := a.url
	if url == "" {
		url = os.Getenv(urlVar)
	}
	s, err := backend.Open(url, create)
	if err != nil {
		return nil, err
	}
	a.note("store %s", s.URL)
	if create && a.verbose {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if grace, err := s.RestartGrace(ctx); err == nil && grace > time.Minute { // longer than most expect
			a.note("a restart of the store now would withhold all locks for %s", short(grace))
		}
	}
	if create {
		for _, w := range s.Warnings() {
			a.note("warning: %s", w)
		}
	}
	return s, nil
}

// view opens the store, without making it, for fn to look at.
func (a *app) view(fn func(ctx context.Context, s *backend.Store) error) error {
	s, err := a.open(false)
	if err != nil {
		return err
	}
	defer closeSoon(s)
	return fn(context.Background(), s)
}

// closeSoon closes c, but does not wait for a store that hangs: what is left goes with this process.
func closeSoon(c io.Closer) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Close() // we have what we came for
	}()
	select {
	case <-done:
	case <-time.After(patience):
	}
}

// inspector is the side of a driver that people ask.
func inspector(s *backend.Store) (driver.Inspector, error) {
	if i, ok := s.Driver.(driver.Inspector); ok {
		return i, nil
	}
	return nil, fail(exitBug, "%s can't be inspected; this is a bug in snib, please report it", s.URL)
}

// status asks the store about one lock.
func status(ctx context.Context, s *backend.Store, name string) (driver.Status, error) {
	i, err := inspector(s)
	if err != nil {
		return driver.Status{}, err
	}
	st, err := i.Status(ctx, name)
	if err != nil {
		return st, fmt.Errorf("%s: %w", s.URL, err)
	}
	return st, nil
}
