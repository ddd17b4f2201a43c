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

// short is a duration as people say it: two units, rounded down.
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

// seconds is a duration as a number for programs, exact to the millisecond.
func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

// printable is text that can't upset a terminal or a table: quoted if it has anything but graphic characters. Names of
// locks and hosts come from others.
func printable(text string) string {
	for _, r := range text {
		if !unicode.IsGraphic(r) || r == unicode.ReplacementChar {
			return strconv.Quote(text)
		}
	}
	return text
}

// oneLine is text that fits on one line and can't upset a terminal: lines are joined, and what is not graphic is written as Go
// does. Errors have what a store says in them.
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

// cut shortens text to n columns. It counts characters, which is right for most scripts.
func cut(text string, n int) string {
	runes := []rune(text)
	if len(runes) <= n || n < 1 {
		return text
	}
	return string(runes[:n-1]) + "…"
}

// describe is a holder as people know it: host, pid and label.
func describe(h driver.Holder) string {
	text := h.Host
	if text == "" {
		text = "unknown host"
	}
	if h.PID != 0 {
		text += fmt.Sprintf(" pid %d", h.PID)
	}
	if h.Label != "" {
		text += " (" + h.Label + ")"
	}
	return printable(text)
}

// foreign reports whether a hold is one of a program that follows no protocol of ours, such as a client of Redis that uses SET NX:
// of such a hold nothing is known but its owner and its end.
func foreign(h driver.Holding) bool {
	return h.Token == 0 && h.Held == 0 && h.Holder == driver.Holder{}
}

// endless is what is left of a hold without an end, as drivers say it.
const endless = 10 * 365 * 24 * time.Hour

// who is the holder.
func who(h driver.Holding) string {
	if foreign(h) {
		return "a program other than snib"
	}
	return describe(h.Holder)
}

// heldBy is the holder, and since when.
func heldBy(h driver.Holding) string { return "held by " + who(h) + heldFor(h) }

// heldFor is how long a hold has lasted, for the end of a phrase, if that is known. Etcd does not know it of a lock that was waited for,
// until its first renewal.
func heldFor(h driver.Holding) string {
	if h.Held == 0 {
		return ""
	}
	return " for " + short(h.Held)
}

// left is how long a hold will last if it is not renewed.
func left(h driver.Holding) string {
	if foreign(h) && h.Left >= endless {
		return "endless"
	}
	return short(h.Left)
}

// end is when a hold ends, for the end of a sentence about it.
func end(h driver.Holding) string {
	if left(h) == "endless" {
		return "its lease never ends"
	}
	return "its lease ends in " + left(h)
}

// token is the fencing token.
func token(h driver.Holding) string {
	if foreign(h) {
		return "none"
	}
	return strconv.FormatUint(h.Token, 10)
}

// shellQuote makes text one word for a POSIX shell.
func shellQuote(text string) string {
	plain := func(r rune) bool {
		return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./:@%+,", r))
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// plural is "1 lock" and "2 locks".
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
