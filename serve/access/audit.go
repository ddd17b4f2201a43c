package access

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sniblock/snib/remotelock/wire"
	"github.com/sniblock/snib/serve"
)

// An Event is one line of the audit log.
type Event = wire.AuditEvent

const (
	// refusalBurst and refusalInterval bound the lines about refusals: a client that asks in
	// vain must not fill the disk.
	refusalBurst    = 1000
	refusalInterval = time.Second / 20

	// recentEvents is how many events an audit log remembers.
	recentEvents = 1000
)

// An AuditLog writes events as lines of JSON. It is safe for concurrent use.
type AuditLog struct {
	path string // "": not a file

	mu       sync.Mutex
	out      io.Writer
	file     *os.File // out, if it is a file that we opened
	isTorn   bool     // it ends with a part of a line, because the disk was full
	refusals *rate.Limiter
	leftOut  int
	recent   []Event // the latest last
}

// OpenAuditLog opens the audit log in a file, to which it appends, and which only its user can
// read.
func OpenAuditLog(path string) (*AuditLog, error) {
	l := NewAuditLog(nil)
	l.path = path
	if err := l.Reopen(); err != nil {
		return nil, err
	}
	return l, nil
}

// NewAuditLog returns an audit log that is written to out, such as [os.Stderr].
func NewAuditLog(out io.Writer) *AuditLog {
	return &AuditLog{out: out, refusals: rate.NewLimiter(rate.Every(refusalInterval), refusalBurst)}
}

// Reopen opens the file again, by its name, because a program that rotates logs has renamed the
// one that was open. If that fails, the log goes on in the old one.
func (l *AuditLog) Reopen() error {
	if l.path == "" {
		return nil
	}
	file, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.file.Close()
	}
	l.out, l.file = file, file
	return nil
}

// Record writes an event, with the time. When it returns nil, the event is written; if the log is a
// file, a crash of the machine does not take it away. A caller that may not act unrecorded must not
// act after an error. Of very many refusals only some are written, with the number of the others.
func (l *AuditLog) Record(e Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.Time = time.Now().UTC()
	if e.Event == EventRefused {
		if !l.refusals.AllowN(e.Time, 1) {
			l.leftOut++
			return nil
		}
		e.LeftOut, l.leftOut = l.leftOut, 0
	}
	if err := l.write(e); err != nil {
		if e.Event == EventRefused {
			l.leftOut = e.LeftOut + 1
		}
		return fmt.Errorf("audit log: %w", err)
	}
	if len(l.recent) == recentEvents {
		l.recent = slices.Delete(l.recent, 0, 1)
	}
	l.recent = append(l.recent, e)
	return nil
}

func (l *AuditLog) write(e Event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if l.isTorn {
		line = append([]byte{'\n'}, line...)
	}
	// One write for each line: lines of several processes that append do not mix.
	n, err := l.out.Write(line)
	if n > 0 {
		l.isTorn = err != nil
	}
	if err != nil || l.file == nil || e.Event == EventRefused {
		return err
	}
	if info, err := l.file.Stat(); err != nil || !info.Mode().IsRegular() {
		return err // a pipe, for one, can't be synced
	}
	return l.file.Sync()
}

// Recent returns up to n of the latest events of this process, the latest first.
func (l *AuditLog) Recent(n int) []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	events := slices.Clone(l.recent[max(0, len(l.recent)-n):])
	slices.Reverse(events)
	return events
}

// Recent returns up to n of the latest events of this process that a principal may see, the latest
// first: those of its locks, if it has the verb admin.
func (a *Access) Recent(p *serve.Principal, n int) []Event {
	rights, err := a.rights(p)
	if err != nil {
		return nil // its rights have ended meanwhile
	}
	policy := a.policy.Load()
	events := []Event{}
	for _, e := range a.audit.Recent(recentEvents) {
		name, ok := policy.nameFor(rights, e)
		if ok && rights.Allows(serve.VerbAdmin, name) && len(events) < n {
			events = append(events, e)
		}
	}
	return events
}

// The kinds of an [Event], and its outcomes.
const (
	EventBreak   = "break"
	EventReserve = "reserve"
	EventRefused = "refused"

	OutcomeBegun   = "begun"
	OutcomeDone    = "done"
	OutcomeFailed  = "failed"  // nothing was done
	OutcomeUnknown = "unknown" // the store did not say
)
