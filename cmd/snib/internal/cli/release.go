package cli

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/cmd/snib/internal/child"
	"github.com/sniblock/snib/driver"
)

// A releasing is one "snib release".
type releasing struct {
	*app
	owner      string
	force, yes bool
	output     *choice
}

func (a *app) releaseCommand() *cobra.Command {
	r := &releasing{app: a}
	cmd := &cobra.Command{
		Use:               "release NAME --owner ID | --force",
		Short:             "take a lock away from its holder",
		Example:           releaseExamples,
		Long:              releaseNotes,
		Args:              oneName,
		ValidArgsFunction: a.completeName,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&r.owner, "owner", "", "take it from the owner `ID`, as shown by snib show, or - for one line of standard input")
	f.BoolVar(&r.force, "force", false, "take it from whoever holds it")
	f.BoolVarP(&r.yes, "yes", "y", false, "don't ask")
	r.output = addOutput(cmd, "table", "json", "name")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if r.force == (r.owner != "") {
			return usagef("from whom? give --owner ID, or --force for whoever holds it")
		}
		if r.owner == "-" && !r.yes {
			return usagef("--owner - reads standard input, on which there is then nobody to ask; give --yes")
		}
		var err error
		if r.owner, err = readOwner(r.owner); err != nil {
			return err
		}
		if !r.yes && !child.IsTerminal(syscall.Stdin) {
			return usagef("there is no terminal to ask on; give --yes to release %s without asking", printable(args[0]))
		}
		return a.view(func(ctx context.Context, s *backend.Store) error { return r.release(ctx, s, args[0]) })
	}
	return cmd
}

func (r *releasing) release(ctx context.Context, s *backend.Store, name string) error {
	st, err := status(ctx, s, name)
	if err != nil {
		return err
	}
	holds := st.Holders
	if r.owner != "" {
		holds = nil
		if h := holding(st, r.owner); h != nil {
			holds = []driver.Holding{*h}
		}
	}
	if len(holds) == 0 {
		return fail(exitNotHeld, "%s is not held%s", printable(name), r.by())
	}
	switch {
	case !r.yes:
		if err := r.ask(name, holds); err != nil {
			return err
		}
	case r.force && left(holds[0]) == "endless":
		return usagef("%s may be no lock at all: snib did not write it, and it has no end; to delete it give its value as --owner, "+
			"or leave --yes out", printable(name))
	}
	var broken []driver.Holding
	for _, h := range holds {
		err := breakHold(ctx, s, name, h)
		if errors.Is(err, snib.ErrLost) {
			continue // it was not there any more
		}
		r.audit(s, name, h, err)
		if err != nil {
			return err
		}
		broken = append(broken, h)
	}
	if err := r.report(name, broken); err != nil {
		return err
	}
	if len(broken) < len(holds) {
		return fail(exitBusy, "the holder of %s changed meanwhile: %s of %d released; see snib show", printable(name),
			plural(len(broken), "hold"), len(holds))
	}
	return nil
}

// by says from whom the lock was to be taken.
func (r *releasing) by() string {
	if r.owner == "" {
		return ""
	}
	return " by " + printable(r.owner)
}

// ask has the lock's name typed.
func (r *releasing) ask(name string, holds []driver.Holding) error {
	for _, h := range holds {
		r.say("%s is %s, and %s", printable(name), heldBy(h), prospect(h))
		if foreign(h) {
			r.say("to release it is to delete it from the store, be it a lock or not")
		}
	}
	r.say("the holder may still be at work; another can then start beside it")
	// What can't be typed is asked for as it is shown.
	fmt.Fprintf(r.err, "type the name of the lock to release it: ")
	text, err := bufio.NewReader(os.Stdin).ReadString('\n')
	typed := strings.TrimRight(text, "\r\n")
	if err != nil || typed != name && typed != printable(name) {
		return usagef("that is not the name: nothing was released")
	}
	return nil
}

// audit writes who broke which hold to standard error, whatever --quiet says: one line of JSON, with an error if the outcome is not
// known. The owner stands in it as a digest, as in the marks of package fence: who knows the owner itself can release the lock.
func (a *app) audit(s *backend.Store, name string, h driver.Holding, err error) {
	attrs := []slog.Attr{
		slog.String("lock", name), slog.String("backend", s.Driver.Info().Backend), slog.String("store", s.URL),
		slog.Uint64("fence", h.Token), slog.String("owner_digest", digest(h.Owner)), slog.String("holder", who(h)),
	}
	if h.Held != 0 { // else it is not known
		attrs = append(attrs, slog.Duration("held", h.Held))
	}
	outcome := "broken"
	if err != nil {
		outcome = "unknown"
		attrs = append(attrs, slog.Any("err", err))
	}
	attrs = append(append(attrs, slog.String("outcome", outcome)), caller()...)
	log := slog.New(slog.NewJSONHandler(a.err, nil))
	log.LogAttrs(context.Background(), slog.LevelWarn, "hold broken by force", attrs...)
}

// digest is what may be told of an owner: the same that a resource has in its mark.
func digest(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:16])
}

// caller is who runs this command: the user, and the one behind sudo, on which host.
func caller() []slog.Attr {
	by := strconv.Itoa(os.Getuid()) // for a user without a name, as in many containers
	if u, err := user.Current(); err == nil {
		by = u.Username
	}
	host, _ := os.Hostname() // shown to people only
	attrs := []slog.Attr{slog.String("by", by), slog.Int("by_uid", os.Getuid()), slog.String("by_host", host), slog.Int("by_pid", os.Getpid())}
	if sudo := os.Getenv("SUDO_USER"); sudo != "" {
		attrs = append(attrs, slog.String("by_sudo_user", sudo))
	}
	return attrs
}

// report says what was broken.
func (r *releasing) report(name string, broken []driver.Holding) error {
	switch r.output.value {
	case "json":
		doc := struct {
			Schema   string       `json:"schema"`
			Name     string       `json:"name"`
			Released []holderJSON `json:"released"`
		}{"snib.release/1", name, []holderJSON{}}
		for _, h := range broken {
			doc.Released = append(doc.Released, toHolder(h))
		}
		return r.printJSON(doc)
	case "name":
		for range broken[:min(1, len(broken))] {
			return r.printf("%s\n", printable(name))
		}
		return nil
	}
	var b strings.Builder
	for _, h := range broken {
		field(&b, "released", printable(name))
		holder(&b, h)
	}
	return r.printf("%s", b.String())
}
