package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/sniblock/snib/driver"
)

// A result is what a command prints. -o chooses the form.
type result struct {
	document func() any      // json: a document of docs/schemas.md
	oneLine  bool            // json: print it on one line, because more documents follow
	names    func() []string // name: one per line
	text     func() string   // table, and the other forms of text
	note     string          // printed to standard error before the text; may be ""
}

// print prints r in the form that output, the value of -o, names.
func (a *app) print(output string, r result) error {
	var text string
	switch output {
	case "json":
		indent := "  "
		if r.oneLine {
			indent = ""
		}
		document, err := encode(r.document(), indent)
		if err != nil {
			return err
		}
		text = string(document) + "\n"
	case "name":
		text = strings.Join(append(r.names(), ""), "\n")
	default:
		if r.note != "" {
			a.infof("%s", r.note)
		}
		text = r.text()
	}
	if text == "" {
		return nil
	}
	return a.printf("%s", text)
}

// mode returns how a lock is held.
func mode(st driver.Status) string {
	switch {
	case len(st.Holders) == 0:
		return "free"
	case st.Slots > 0:
		return "slots"
	case st.Shared:
		return "shared"
	}
	return "exclusive"
}

// encode returns v as JSON for a terminal, on one line if indent is "". It does not escape HTML.
func encode(v any, indent string) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return nil, failf(exitBug, "no JSON: %w; this is a bug in snib, please report it", err)
	}
	return escapeJSON(strings.TrimSuffix(text.String(), "\n")), nil
}

// escapeJSON escapes all characters in JSON that are not graphic, so that names, labels and reasons
// can't upset a terminal.
func escapeJSON(text string) (safe []byte) {
	for _, r := range text {
		switch {
		case r == '\n' || unicode.IsGraphic(r): // a line feed is the document's own
			safe = utf8.AppendRune(safe, r)
		default: // inside a string: everything else is ASCII
			for _, unit := range utf16.Encode([]rune{r}) {
				safe = fmt.Appendf(safe, `\u%04x`, unit)
			}
		}
	}
	return safe
}

// A jsonWriter writes JSON of a log to a terminal.
type jsonWriter struct{ out io.Writer }

// Write implements [io.Writer].
func (w jsonWriter) Write(p []byte) (int, error) {
	_, err := w.out.Write(escapeJSON(string(p)))
	return len(p), err
}

// printf prints a part of the result.
func (a *app) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(a.out, format, args...)
	return err
}

// A resultWriter writes results. It keeps its first error, which cobra ignores when it prints help.
type resultWriter struct {
	out io.Writer
	err error
}

func (w *resultWriter) Write(p []byte) (int, error) {
	n, err := w.out.Write(p)
	if err != nil {
		w.err = cmp.Or(w.err, failf(exitOutput, "the result can't be written: %w", err))
	}
	return n, w.err
}

// A backgroundWriter writes in a goroutine of its own. If nobody reads, as after Ctrl-S or from a
// full pipe, it drops what comes, so that no message keeps snib from a renewal, from ending a
// command in time, or from serving.
type backgroundWriter struct {
	out  io.Writer
	work chan func()
}

func newBackgroundWriter(out io.Writer) *backgroundWriter {
	w := &backgroundWriter{out, make(chan func(), 64)}
	go func() {
		for do := range w.work {
			do()
		}
	}()
	return w
}

// Write implements [io.Writer].
func (w *backgroundWriter) Write(p []byte) (int, error) {
	text := bytes.Clone(p)
	select {
	case w.work <- func() { _, _ = w.out.Write(text) }:
	default:
	}
	return len(p), nil
}

// A recordWriter writes lines of the audit log among the messages of a backgroundWriter. It reports
// whether a line was written, because nothing is broken unrecorded. If a write takes longer than
// feedbackInterval, it fails, and so does each one at once until that has ended.
type recordWriter struct {
	*backgroundWriter
	turn chan struct{} // has room for one, whose line is being written
}

// Write implements [io.Writer].
func (w recordWriter) Write(p []byte) (int, error) {
	const errUnread = driver.Sentinel("nobody reads standard error")
	select {
	case w.turn <- struct{}{}:
	default:
		return 0, errUnread
	}
	var n int
	var err error
	text := bytes.Clone(p)
	isOver := within(feedbackInterval, func() {
		written := make(chan struct{})
		w.work <- func() { n, err = w.out.Write(text); close(written) }
		<-written
		<-w.turn
	})
	if !isOver {
		return 0, errUnread
	}
	return n, err
}

// flush waits until all messages are written, but no longer than feedbackInterval.
func (a *app) flush() {
	w, ok := a.err.(*backgroundWriter)
	if !ok {
		return
	}
	within(feedbackInterval, func() {
		written := make(chan struct{})
		w.work <- func() { close(written) }
		<-written
	})
}
