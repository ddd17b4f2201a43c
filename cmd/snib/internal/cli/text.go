package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sniblock/snib/driver"
)

// short formats a duration for people: at most two units, rounded down.
func short(d time.Duration) string {
	d = max(d, 0)
	days := d / (24 * time.Hour)
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d/time.Millisecond)
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case days < 1:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", days, d%(24*time.Hour)/time.Hour)
}

// seconds returns a duration as a number for programs, rounded to the millisecond.
func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

// printable returns text in a form that can't upset a terminal or a table: quoted if it contains
// anything but graphic characters. The names of locks and hosts come from other people.
func printable(text string) string {
	for _, r := range text {
		if !unicode.IsGraphic(r) || r == unicode.ReplacementChar {
			return strconv.Quote(text)
		}
	}
	return text
}

// oneLine returns text on one line and safe for a terminal. It joins lines, and escapes
// characters that are not graphic as Go does. Errors may contain what a store says.
func oneLine(text string) string {
	joined := ""
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
		switch line = strings.TrimSpace(line); {
		case joined == "" || line == "":
		case strings.HasSuffix(joined, ":"):
			joined += " "
		default:
			joined += "; "
		}
		joined += line
	}
	var b strings.Builder
	for rest := joined; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, rest[0])
		case unicode.IsGraphic(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
		rest = rest[size:]
	}
	return b.String()
}

// truncate shortens text to n columns. It counts characters, which is right for most scripts.
func truncate(text string, n int) string {
	runes := []rune(text)
	if len(runes) <= n || n < 1 {
		return text
	}
	return string(runes[:n-1]) + "…"
}

// describeHolder returns the host, the pid and the label of a holder.
func describeHolder(h driver.Holder) string {
	text := h.Host
	if text == "" {
		text = "unknown host"
	}
	if h.PID != 0 {
		text += fmt.Sprintf(" pid %d", h.PID)
	}
	if label := h.Text(); label != "" {
		text += " (" + label + ")"
	}
	return printable(text)
}

// isForeign reports whether a hold belongs to a program that does not follow snib's
// protocol, such as a client of Redis that uses SET NX. Only the id and the end
// of such a hold are known, and sometimes the library.
func isForeign(h driver.Holding) bool {
	return h.Foreign != "" || h.Token == 0 && h.Held == 0 && h.Holder == driver.Holder{}
}

// isUnbreakable reports whether h stands for something in the store that may be no lock, and that
// snib can't remove.
func isUnbreakable(h driver.Holding) bool { return h.Foreign != "" && h.ID == "" }

// otherProgram names a foreign holder or waiter of whom nothing is known.
const otherProgram = "a program other than snib"

// waiterName describes a waiter, and for how long it has waited. Nothing is known of a foreign one.
func waiterName(w driver.Waiting) string {
	if w.Waited == 0 && w.Holder == (driver.Holder{}) {
		return otherProgram
	}
	return describeHolder(w.Holder) + ", for " + short(w.Waited)
}

// endlessLeft is the time left that JSON has for a hold without an end.
const endlessLeft = 10 * 365 * 24 * time.Hour

// holderName describes the holder of h.
func holderName(h driver.Holding) string {
	switch {
	case h.Foreign != "":
		return printable(h.Foreign)
	case isForeign(h):
		return otherProgram
	}
	return describeHolder(h.Holder)
}

// heldBy says who the holder is, and for how long if that is known. Until the first renewal, etcd
// does not know it for a lock that was waited for.
func heldBy(h driver.Holding) string {
	if h.Held == 0 {
		return "held by " + holderName(h)
	}
	return "held by " + holderName(h) + " for " + short(h.Held)
}

// leaseLeft returns how long a hold lasts if it is not renewed.
func leaseLeft(h driver.Holding) string {
	if h.Left == driver.NoExpiry {
		return "endless"
	}
	return short(h.Left)
}

// leaseEnd says when a hold ends, for the end of a sentence about it.
func leaseEnd(h driver.Holding) string {
	if leaseLeft(h) == "endless" {
		return "its lease never ends"
	}
	return "its lease ends in " + leaseLeft(h)
}

// describeHeirs names the processes that keep a hold whose own process is gone.
func describeHeirs(h driver.Holding) string {
	var all []string
	for _, k := range h.Heirs {
		text := fmt.Sprintf("pid %d", k.PID)
		if k.Label != "" {
			text += " (" + k.Label + ")"
		}
		all = append(all, text)
	}
	if len(all) == 0 {
		return "a process that can't be seen"
	}
	return printable(strings.Join(all, ", "))
}

// describeEnd says when a hold ends, for the end of a sentence about it.
func describeEnd(h driver.Holding) string {
	if h.Inherited {
		return "that process is gone, but processes that it started keep the lock: " + describeHeirs(h)
	}
	return leaseEnd(h)
}

// tokenText returns the fencing token as text.
func tokenText(h driver.Holding) string {
	if isForeign(h) {
		return "none"
	}
	return strconv.FormatUint(h.Token, 10)
}

// shellQuote quotes text so that a POSIX shell reads it as one word.
func shellQuote(text string) string {
	plain := func(r rune) bool {
		return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./:@%+,", r))
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// plural returns "1 lock" or "2 locks".
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
