package cli

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
)

// checkYes refuses a command that has to ask where nobody can answer. yes is the flag --yes.
func checkYes(yes bool) error {
	if !yes && !term.IsTerminal(int(syscall.Stdin)) { //nolint:unconvert // a handle on Windows
		return usagef("there is no terminal to ask on; give --yes to go on without asking")
	}
	return nil
}

// ask asks the user to type one of some words.
func (a *app) ask(question string, words ...string) error {
	fmt.Fprint(a.err, question)
	text, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil || !slices.Contains(words, strings.TrimRight(text, "\r\n")) {
		return usagef("that is not %s: nothing was done", printable(words[0]))
	}
	return nil
}

// audit logs who did something by force in a store to standard error, even with --quiet: one line
// of JSON. If err is not nil, nobody knows whether it was done.
func (a *app) audit(s *backend.Store, what, done string, err error, attrs ...slog.Attr) {
	all := append([]slog.Attr{slog.String("backend", s.Driver.Info().Backend), slog.String("store", s.URL)}, attrs...)
	if err != nil {
		done = "unknown"
		all = append(all, slog.Any("err", err))
	}
	host, _ := os.Hostname() // only people read it
	all = append(all, slog.String("outcome", done),
		slog.String("by", userName()), slog.Int("by_uid", os.Getuid()), slog.String("by_host", host), slog.Int("by_pid", os.Getpid()))
	if sudo := os.Getenv("SUDO_USER"); sudo != "" {
		all = append(all, slog.String("by_sudo_user", sudo))
	}
	line := slog.NewRecord(time.Now(), slog.LevelWarn, what, 0)
	line.AddAttrs(all...)
	if err := slog.NewJSONHandler(jsonWriter{a.err}, nil).Handle(context.Background(), line); err != nil {
		a.unaudited = failf(exitOutput, "the audit line can't be printed: %w", err)
	}
}
