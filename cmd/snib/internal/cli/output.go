package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/sniblock/snib/driver"
)

// The documents that -o json prints. Each begins with its schema. The schema's number grows
// if a field changes its meaning or is removed; new fields may be added at any time.
// Durations are in seconds.

// A lockJSON is one lock as the store sees it.
type lockJSON struct {
	Name    string       `json:"name"`
	Mode    string       `json:"mode"` // "free", "exclusive", "shared" or "slots"
	Slots   int          `json:"slots,omitempty"`
	Holders []holderJSON `json:"holders"`
	Waiters []waiterJSON `json:"waiters"`
}

type holderJSON struct {
	Owner string `json:"owner"`
	Token uint64 `json:"token"`
	Host  string `json:"host,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Label string `json:"label,omitempty"`
	// Nil if unknown; 0 is less than half a millisecond.
	Held *float64 `json:"held,omitempty"`
	Left float64  `json:"left"`
}

type waiterJSON struct {
	Owner  string  `json:"owner"`
	Shared bool    `json:"shared"`
	Host   string  `json:"host,omitempty"`
	PID    int     `json:"pid,omitempty"`
	Label  string  `json:"label,omitempty"`
	Waited float64 `json:"waited"`
}

func toJSON(st driver.Status) lockJSON {
	l := lockJSON{Name: st.Name, Mode: mode(st), Slots: st.Slots, Holders: []holderJSON{}, Waiters: []waiterJSON{}}
	for _, h := range st.Holders {
		l.Holders = append(l.Holders, toHolder(h))
	}
	for _, w := range st.Waiters {
		l.Waiters = append(l.Waiters, waiterJSON{
			Owner: w.Owner, Shared: w.Shared,
			Host: w.Holder.Host, PID: w.Holder.PID, Label: w.Holder.Label, Waited: seconds(w.Waited),
		})
	}
	return l
}

func toHolder(h driver.Holding) holderJSON {
	j := holderJSON{
		Owner: h.Owner, Token: h.Token,
		Host: h.Holder.Host, PID: h.Holder.PID, Label: h.Holder.Label, Left: seconds(min(h.Left, endlessLeft)),
	}
	if h.Held != 0 {
		held := seconds(h.Held)
		j.Held = &held
	}
	return j
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

// marshal returns v as JSON on one line. It does not escape for HTML, but it escapes all
// characters that are not graphic, so that names and labels can't upset a terminal.
func marshal(v any) ([]byte, error) { return encode(v, "") }

// printJSON prints v as one indented document.
func (a *app) printJSON(v any) error {
	text, err := encode(v, "  ")
	if err != nil {
		return err
	}
	return a.printf("%s\n", text)
}

func encode(v any, indent string) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return nil, failf(exitBug, "no JSON: %w; this is a bug in snib, please report it", err)
	}
	var safe []byte
	for _, r := range strings.TrimSuffix(text.String(), "\n") {
		switch {
		case r == '\n' || unicode.IsGraphic(r): // a line feed is the document's own
			safe = utf8.AppendRune(safe, r)
		default: // inside a string: everything else is ASCII
			for _, unit := range utf16.Encode([]rune{r}) {
				safe = fmt.Appendf(safe, `\u%04x`, unit)
			}
		}
	}
	return safe, nil
}

// printf prints a part of the result.
func (a *app) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(outputWriter{a.out}, format, args...)
	return err
}

// An outputWriter is a writer whose errors say that printing the result failed.
type outputWriter struct{ w io.Writer }

func (o outputWriter) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil {
		return n, failf(exitOutput, "the result can't be printed: %w", err)
	}
	return n, nil
}
