package serve

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// faultInterval is how much time passes between two lines about faults of one kind: a client may
// cause them as often as it likes.
const faultInterval = time.Minute

// A faultLog logs faults of one kind. It is safe for concurrent use.
type faultLog struct {
	log   func(string)
	limit rate.Sometimes
}

func newFaultLog(log func(string)) *faultLog {
	return &faultLog{log, rate.Sometimes{Interval: faultInterval}}
}

// printf logs a fault, unless there was one just now.
func (l *faultLog) printf(format string, args ...any) {
	l.limit.Do(func() { l.log(oneLine(fmt.Sprintf(format, args...))) })
}

// Write implements [io.Writer] for the log of net/http.
func (l *faultLog) Write(text []byte) (int, error) {
	l.printf("%s", text)
	return len(text), nil
}

// oneLine returns a text as one line.
func oneLine(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ") }
