package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/fence"
)

// An envHold is the hold that our environment describes.
type envHold struct {
	name, id string
	token    uint64
}

func (h envHold) Name() string  { return h.name }
func (h envHold) Token() uint64 { return h.token }
func (h envHold) ID() string    { return h.id }

func (a *app) newFenceCommand() *cobra.Command {
	adopt := false
	cmd := &cobra.Command{
		Use:     "fence FILE -- COMMAND [ARG...]",
		Short:   "replace a file, but only with the newest fencing token",
		Example: fenceExamples,
		Long:    fenceNotes,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 || args[0] == "" {
				return usagef("it takes one file, then --, then a command; usage: %s", cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.fence(cmd.Context(), fence.File{Path: args[0], Mode: 0o666 &^ umask(), Adopt: adopt}, args[1:])
		},
	}
	cmd.Flags().BoolVar(&adopt, "adopt", false, "begin to guard a FILE that exists and has no FILE.fence")
	return cmd
}

// fence replaces a file by the output of a command, which gets the old contents as its input.
func (a *app) fence(ctx context.Context, guard fence.File, argv []string) error {
	file := guard.Path
	hold, err := holdFromEnv()
	if err != nil {
		return err
	}
	path, err := lookUp(argv[0])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	sigs := make(chan os.Signal, 1)
	notifySignals(sigs, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT)
	go func() { cancel(silentExit(exitSignal + int((<-sigs).(syscall.Signal)))) }()
	h, err := guard.Open(ctx, hold)
	if err != nil {
		return fenceError(ctx, file, err)
	}
	old, err := h.Read(ctx)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fenceError(ctx, file, err)
	}
	err = h.Replace(ctx, func(w io.Writer) error {
		// Behind a pipe: what the command leaves behind would write to the file itself later.
		out := &resultWriter{out: w}
		var cmd *exec.Cmd
		err := startProgram(path, argv, func(path string, argv []string) error {
			cmd = exec.CommandContext(ctx, path)
			cmd.Path, cmd.Args, cmd.Err = path, argv, nil // lookUp has found it
			cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(old), out, a.err
			cmd.Cancel = func() error { return askToEnd(cmd.Process) }
			cmd.WaitDelay = 5 * time.Second
			return cmd.Start()
		})
		if err == nil {
			err = commandError(cmd.Wait())
		}
		return cmp.Or(out.err, err) // on a full disk, the command dies of SIGPIPE
	})
	if err != nil {
		return fenceError(ctx, file, err)
	}
	a.verbosef("replaced %s, token %d", printable(file), hold.token)
	return nil
}

// holdFromEnv returns the hold that this process runs under.
func holdFromEnv() (envHold, error) {
	h := envHold{name: os.Getenv("SNIB_NAME"), id: os.Getenv(idVar)}
	token := os.Getenv("SNIB_TOKEN")
	if h.name == "" || h.id == "" || token == "" {
		return h, usagef("there is no hold: run this under snib run, or set SNIB_NAME, SNIB_TOKEN and SNIB_ID to what snib lock printed")
	}
	var err error
	if h.token, err = strconv.ParseUint(token, 10, 63); err != nil || h.token == 0 {
		return h, usagef("SNIB_TOKEN is %q, which is no fencing token", token)
	}
	return h, nil
}

// commandError turns the failure of the command into our exit code. The file stays unchanged.
func commandError(err error) error {
	var exit *exec.ExitError
	if errors.Is(err, exec.ErrWaitDelay) {
		return failf(exitOutput, "the command has ended, but not its output: a process that it started keeps that open")
	}
	if !errors.As(err, &exit) {
		return err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return silentExit(exitSignal + int(status.Signal()))
	}
	return silentExit(exit.ExitCode())
}

// fenceError explains why a file was not replaced.
func fenceError(ctx context.Context, file string, err error) error {
	var f *exitError
	var refused *fence.RefusedError
	switch {
	case ctx.Err() != nil: // by a signal
		return context.Cause(ctx)
	case errors.As(err, &f):
		return f
	case errors.As(err, &refused):
		return failf(exitLost, "%s was not touched: %s", printable(filepath.Base(file)), message(err))
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return failf(exitNotAllowed, "%s", message(err))
	}
	return failf(exitOutput, "%s", message(err))
}
