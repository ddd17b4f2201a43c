package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/fence"
)

const fenceUsage = "usage: snib fence FILE -- COMMAND [ARG...]"

// aHold is the hold that our environment tells of.
type aHold struct {
	name, owner string
	token       uint64
}

func (h aHold) Name() string  { return h.name }
func (h aHold) Token() uint64 { return h.token }
func (h aHold) Owner() string { return h.owner }

func (a *app) fenceCommand() *cobra.Command {
	adopt := false
	cmd := &cobra.Command{
		Use:     "fence FILE -- COMMAND [ARG...]",
		Short:   "replace a file, but only with the newest fencing token",
		Example: fenceExamples,
		Long:    fenceNotes,
		Args: func(cmd *cobra.Command, args []string) error {
			switch dash := cmd.ArgsLenAtDash(); {
			case dash < 0:
				return usagef("no -- before the command: %s", fenceUsage)
			case dash != 1 || args[0] == "":
				return usagef("%d files were named, it takes one: %s", dash, fenceUsage)
			case len(args) == 1:
				return usagef("no command was given: %s", fenceUsage)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.fence(cmd.Context(), fence.File{Path: args[0], Adopt: adopt}, args[1:])
		},
	}
	cmd.Flags().BoolVar(&adopt, "adopt", false, "begin to guard a FILE that exists and has no FILE.fence")
	return cmd
}

// fence runs a command that turns the old contents of a file into new ones.
func (a *app) fence(ctx context.Context, guard fence.File, argv []string) error {
	file := guard.Path
	hold, err := holdAround()
	if err != nil {
		return err
	}
	path, err := lookUp(argv[0])
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	defer stop()
	h, err := guard.Open(ctx, hold)
	if err != nil {
		return fenced(file, err)
	}
	old, err := h.Read(ctx)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fenced(file, err)
	}
	err = h.Replace(ctx, func(w io.Writer) error {
		cmd := exec.CommandContext(ctx, path)
		cmd.Args, cmd.Stdin, cmd.Stdout, cmd.Stderr = argv, bytes.NewReader(old), w, a.err
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = 5 * time.Second
		return ended(cmd.Run())
	})
	if err != nil {
		return fenced(file, err)
	}
	a.note("replaced %s, token %d", printable(file), hold.token)
	return nil
}

// holdAround reads the hold that we run under.
func holdAround() (aHold, error) {
	h := aHold{name: os.Getenv("SNIB_NAME"), owner: os.Getenv("SNIB_OWNER")}
	token := os.Getenv("SNIB_TOKEN")
	if h.name == "" || h.owner == "" || token == "" {
		return h, usagef("there is no hold: run this under snib run, or set SNIB_NAME, SNIB_TOKEN and SNIB_OWNER to what snib lock printed")
	}
	var err error
	if h.token, err = strconv.ParseUint(token, 10, 63); err != nil || h.token == 0 {
		return h, usagef("SNIB_TOKEN is %q, and no fencing token", token)
	}
	return h, nil
}

// ended turns the end of the command into the exit code that ours is, with which the file stays as it was.
func ended(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return silent(exitSignal + int(status.Signal()))
	}
	return silent(exit.ExitCode())
}

// fenced says why a file was not replaced.
func fenced(file string, err error) error {
	var f *failure
	var refused *fence.RefusedError
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &refused):
		return fail(exitLost, "%s was not touched: %s", printable(filepath.Base(file)), message(err))
	case errors.Is(err, context.Canceled):
		return silent(exitSignal + int(syscall.SIGTERM))
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fail(exitNotAllowed, "%s", message(err))
	}
	return fail(exitOutput, "%s", message(err))
}
