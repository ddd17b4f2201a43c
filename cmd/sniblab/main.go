// Command sniblab runs locks under faults and judges them, and demonstrates how broken locks
// fail. See docs/lab.md.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sniblock/snib/cmd/sniblab/internal/demo"
	"github.com/sniblock/snib/remotelock/wire"
)

// Exit codes.
const (
	exitRejected    = 1  // a target was rejected
	exitUsage       = 64 // a wrong command line
	exitVoid        = 65 // a control did not get its verdict
	exitUnavailable = 69 // a server or a library is missing, or failed
	exitOutput      = 74 // a result could not be written
	exitProtocol    = 76 // a target does not keep to the protocol
	exitSignal      = 128
)

func main() {
	demo.Main() // a client of a demo is a process of this program, too
	os.Exit(runMain(os.Args[1:], os.Stdout, os.Stderr))
}

// runMain runs the command, and returns its exit code.
func runMain(args []string, out, errs io.Writer) int {
	root := newRootCommand(out, errs)
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		return 0
	}
	code := exitUsage // cobra's own errors are about the command line
	if e, ok := errors.AsType[*exitError](err); ok {
		code = e.code
		if e.err == nil {
			return code
		}
	}
	fmt.Fprintln(errs, "sniblab: "+oneLine(err.Error()))
	return code
}

func newRootCommand(out, errs io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use: "sniblab", Short: "run locks under faults and judge them", Version: wire.ProgramVersion(),
		SilenceErrors: true, SilenceUsage: true,
	}
	root.SetOut(out)
	root.SetErr(errs)
	root.AddCommand(newRunCommand(), newListCommand(), newDemoCommand(), newTargetCommand())
	return root
}

// An exitError ends the program with a code, without a message if err is nil.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func failf(code int, format string, args ...any) error {
	return &exitError{code, fmt.Errorf(format, args...)}
}

func usagef(format string, args ...any) error { return failf(exitUsage, format, args...) }

// silentExit ends the program with code, without a message.
func silentExit(code int) error { return &exitError{code: code} }

// printed returns the error for a result that could not be printed, or nil if err is nil.
func printed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPIPE): // the reader has seen enough
		return silentExit(exitSignal + int(syscall.SIGPIPE))
	}
	return failf(exitOutput, "the result can't be printed: %w", err)
}

// message returns the text of err on one line.
func message(err error) string { return oneLine(err.Error()) }

// oneLine joins the lines of a text, and removes what could upset a terminal.
func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) || unicode.IsSpace(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
	return strings.Join(strings.Fields(text), " ")
}

// shellQuote returns text as one word for a shell.
func shellQuote(text string) string {
	plain := func(r rune) bool {
		return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./:@%+,", r))
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// writeTerm writes a term and its explanation, which begins at a column and is wrapped.
func writeTerm(b *strings.Builder, term, text string, column int) {
	const width = 79
	line := fmt.Sprintf("%-*s", column, term)
	if len(term) >= column {
		fmt.Fprintln(b, term)
		line = strings.Repeat(" ", column)
	}
	for word := range strings.FieldsSeq(text) {
		if len(line) > column && len(line)+1+len(word) > width {
			fmt.Fprintln(b, line)
			line = strings.Repeat(" ", column)
		}
		if len(line) > column {
			line += " "
		}
		line += word
	}
	fmt.Fprintln(b, line)
}

// terminalWidth returns the number of columns of the terminal f, or 0 if f is none.
func terminalWidth(f *os.File) int {
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// installHint says what to install for a server that is missing.
func installHint(e *demo.MissingError) string {
	packages := map[string]string{
		"redis": "redis-server", "postgres": "postgresql", "pgbouncer": "pgbouncer", "zookeeper": "zookeeper",
		"mysql": "mariadb-server", "etcd": "etcd-server",
	}
	name := packages[e.Server]
	if name == "" {
		return e.Error()
	}
	return fmt.Sprintf("%s; it is needed to start a server (Debian, Ubuntu: apt install %s)", e, name)
}

// names returns the name of each.
func names[T any](all []T, name func(T) string) []string {
	made := make([]string, len(all))
	for i, one := range all {
		made[i] = name(one)
	}
	return made
}
