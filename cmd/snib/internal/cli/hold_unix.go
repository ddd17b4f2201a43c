//go:build unix

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/child"
	"github.com/sniblock/snib/driver"
)

// keeperVar tells a process that it is the keeper that "snib hold" has started.
const keeperVar = "SNIB_HOLD_PARENT"

// A holdCommand is one call of "snib hold". It starts itself again as the keeper: a process in the
// background that acquires the lock, renews it, and releases it when a script ends.
type holdCommand struct {
	*runCommand
	pid    int // of the script
	output *choice
	script *child.Process
}

func (a *app) newHoldCommand() *cobra.Command {
	unset := func() *duration { return &duration{} }
	h := &holdCommand{runCommand: &runCommand{
		app: a, busyCode: exitBusy, argv: []string{"snib hold"},
		minHold: unset(), maxHold: unset(), timeout: unset(),
	}}
	cmd := &cobra.Command{
		Use:               "hold NAME --pid PID",
		Short:             "hold a lock for the rest of a script",
		Example:           holdExamples,
		Long:              holdNotes,
		Args:              oneName,
		RunE:              func(cmd *cobra.Command, args []string) error { return h.hold(cmd, args[0]) },
		ValidArgsFunction: a.completeName,
	}
	f := cmd.Flags()
	f.IntVar(&h.pid, "pid", 0, "hold the lock until the process `PID` ends; required: $$ in a shell script")
	h.waitFlags.register(cmd)
	f.BoolVarP(&h.shared, "shared", "s", false, "share the lock with others that share it (the read side)")
	h.ttl = addDuration(cmd, "ttl", "", "how long the lock outlives its keeper if that dies or hangs (not in etcd and ZooKeeper)", defaultTTL, minTTL)
	f.StringVar(&h.label, "label", "", "a `TEXT` that shows others what holds the lock")
	h.output = addOutput(cmd, "shell", "json")
	return cmd
}

func (h *holdCommand) hold(cmd *cobra.Command, name string) error {
	h.name, h.names = name, []string{name}
	if !cmd.Flags().Changed("pid") {
		return usagef("no --pid was given: say which process holds the lock, in a shell script with --pid $$")
	}
	if err := h.checkFlagConflicts(cmd); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // nobody may read what we print any more
	var err error
	if h.script, err = child.Watch(h.pid); err != nil {
		return usagef("--pid %d: there is no such process; in a shell script give $$", h.pid)
	}
	if _, isKeeper := os.LookupEnv(keeperVar); isKeeper {
		return h.keep(cmd.Context())
	}
	return h.startKeeper()
}

// startKeeper starts the keeper, waits until it has the lock, and prints what it says. If this
// process ends before, the keeper gives up, and releases what it was granted.
func (h *holdCommand) startKeeper() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	keeper := exec.Command(self, h.args...)
	keeper.Args[0] = os.Args[0]
	keeper.Env = environ(keeperVar + "=1")
	keeper.Stderr = os.Stderr
	said := new(bytes.Buffer)
	if sameFile(os.Stdout, os.Stderr) { // whoever reads our output waits until nobody can write it
		keeper.Stderr = said
	}
	child.Detach(keeper)
	ack, err := keeper.StdinPipe() // its end tells the keeper of ours
	if err != nil {
		return err
	}
	out, err := keeper.StdoutPipe()
	if err != nil {
		return err
	}
	if err := keeper.Start(); err != nil {
		return err
	}
	grant, err := io.ReadAll(out)
	if err == nil && len(grant) > 0 {
		_, _ = ack.Write([]byte("ok\n"))             // fails only if the keeper has ended, which others can tell
		if err = h.printf("%s", grant); err != nil { // nobody knows of the hold
			_ = keeper.Process.Signal(endSignal)
			_ = keeper.Wait()
		}
		return err
	}
	err = keeper.Wait()
	_, _ = os.Stderr.Write(said.Bytes()) // if it is closed, the user can't be told
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return silentExit(exit.ExitCode()) // it has said why
	}
	return failf(exitBug, "the process that was to hold %s ended: %v", printable(h.name), err)
}

// sameFile reports whether both are one file, pipe or terminal.
func sameFile(a, b *os.File) bool {
	x, err := a.Stat()
	y, err2 := b.Stat()
	return err == nil && err2 == nil && x.Mode()&os.ModeCharDevice == 0 && os.SameFile(x, y)
}

// keep acquires the lock, tells the parent, and holds the lock until the script ends.
func (h *holdCommand) keep(ctx context.Context) error {
	h.sigs = make(chan os.Signal, 64)
	go h.giveUp(os.Stdin)
	_, locker, held, _, err := h.acquireLocks(ctx)
	if err != nil {
		return err
	}
	signal.Notify(h.sigs, endSignal)
	defer closeSoon(locker)
	keepers := strings.Join(append(livingKeepers(), keeperEntry(os.Getpid(), held[0].ID())), " ")
	err = h.printHold(h.output.value, held[0], h.ttl.value, keepers)
	if err == nil {
		err = os.Stdout.Close() // tells the parent that this was all
	}
	if err != nil {
		held.release()
		return err
	}
	code := h.guard(held)
	_ = h.release(held) // it reports its failure
	return silentExit(code)
}

// giveUp ends the wait for the lock, or the hold, if the script ends, or if our parent ends before
// it has read the grant, which it says on stdin: nobody would know of the hold.
func (h *holdCommand) giveUp(stdin io.Reader) {
	parent := make(chan struct{})
	go func() {
		if n, _ := io.Copy(io.Discard, stdin); n == 0 {
			close(parent)
		}
	}()
	select {
	case <-parent:
	case <-h.script.Ended():
	}
	h.sigs <- syscall.SIGTERM // ends the wait
	h.sigs <- endSignal       // ends the hold if it was granted
}

// endSignal ends a keeper that holds the lock. Not TERM, HUP or USR1: service managers and batch
// systems send those to the script and to its keeper alike, and the script may work on after that.
// VTALRM comes from nobody else.
const endSignal = syscall.SIGVTALRM

// guard returns when the script has ended, at endSignal, or when the lock is lost. It asks the
// script to end before the lock can belong to somebody else.
func (h *holdCommand) guard(held holds) (code int) {
	threshold := min(5*time.Second, min(h.ttl.value, held.validity())/3)
	lost, failing := held.lost(), false
	check := time.NewTimer(0)
	defer check.Stop()
	for {
		select {
		case <-h.script.Ended():
			return exitOK
		case s := <-h.sigs:
			if s == endSignal {
				return exitOK
			}
		case <-lost:
			h.endScript("lost %s: somebody released it by force, or its lease was over", held)
			return exitLost
		case <-check.C:
			left := held.validity()
			if left <= threshold && !failing {
				h.endScript("about to lose %s: its lease can't be renewed", held)
			}
			failing = left <= threshold
			check.Reset(max(left-threshold, 20*time.Millisecond))
		}
	}
}

// endScript says why the script can't go on, and asks it to end.
func (h *holdCommand) endScript(format string, args ...any) {
	h.script.Terminate()
	h.messagef("%s; sent TERM to the script, pid %d", fmt.Sprintf(format, args...), h.pid)
}

// keeperEntry returns what keepersVar has for a hold.
func keeperEntry(pid int, id string) string { return fmt.Sprintf("%d:%s", pid, driver.Digest(id)) }

// hasKeeper reports whether the keeper of the hold with an id may live.
func hasKeeper(id string) bool {
	return slices.ContainsFunc(livingKeepers(), func(entry string) bool { return strings.HasSuffix(entry, ":"+driver.Digest(id)) })
}

// livingKeepers returns what keepersVar has, without the keepers that have ended.
func livingKeepers() []string {
	return slices.DeleteFunc(strings.Fields(os.Getenv(keepersVar)), func(entry string) bool {
		pid, _, _ := strings.Cut(entry, ":")
		n, err := strconv.Atoi(pid)
		return err != nil || child.Gone(n)
	})
}

// endKeeper asks the keeper of the hold with an id to release it, and reports whether it has ended.
// By its pid and host it must still be a holder in st: another process may have the pid by now.
func endKeeper(st driver.Status, id string) bool {
	host, _ := os.Hostname()
	i := slices.IndexFunc(st.Holders, func(h driver.Holding) bool {
		return h.Holder.Host == host && slices.Contains(livingKeepers(), keeperEntry(h.Holder.PID, id))
	})
	if i < 0 {
		return false
	}
	pid := st.Holders[i].Holder.PID
	keeper, err := child.Watch(pid)
	if err != nil {
		return false // it has ended
	}
	_ = syscall.Kill(pid, endSignal) // the only likely error is that it has ended
	select {
	case <-keeper.Ended():
		return true
	case <-time.After(releaseTimeout + 2*feedbackInterval):
		return false
	}
}
