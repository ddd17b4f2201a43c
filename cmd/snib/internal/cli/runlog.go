package cli

import (
	"os"
	"time"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
)

// A runLog appends one line of JSON to a file when a call of "snib run" ends. A nil runLog does
// nothing.
type runLog struct {
	file           *os.File
	began, granted time.Time
	doc            runJSON
}

// openLog opens the file of --log, if that is given. The file must be writable before the command
// runs: afterwards it would be too late to say so.
func (r *runCommand) openLog() (*runLog, error) {
	if r.logFile == "" {
		return nil, nil
	}
	f, err := os.OpenFile(r.logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, failf(exitOutput, "--log: %w", err)
	}
	return &runLog{file: f, doc: runJSON{Schema: "snib.run/1", Names: r.names}}, nil
}

// begin notes that the wait for the locks begins.
func (l *runLog) begin() {
	if l != nil {
		l.began = time.Now()
	}
}

// grant notes that the locks are held.
func (l *runLog) grant(s *backend.Store, held holds, token uint64) {
	if l != nil {
		l.granted, l.doc.Names = time.Now(), held.names()
		l.doc.Store, l.doc.Token = s.URL, token
	}
}

// end writes the line. err is how the call ends, and may be a silent one.
func (l *runLog) end(a *app, err error, lost bool) {
	if l == nil {
		return
	}
	now := time.Now()
	waited := now.Sub(l.began)
	if !l.granted.IsZero() {
		waited, l.doc.Held = l.granted.Sub(l.began), seconds(now.Sub(l.granted))
	}
	l.doc.Time, l.doc.Waited = l.began.UTC().Format(time.RFC3339Nano), seconds(waited)
	l.doc.ExitCode, l.doc.Lost = exitCode(err), lost
	if err != nil && !isSilent(err) {
		l.doc.Error = message(err)
	}
	line, err := encode(l.doc, "")
	if err == nil {
		_, err = l.file.Write(append(line, '\n')) // at once, so that lines of several processes do not mix
	}
	if err != nil {
		a.messagef("warning: --log: %v", err)
	}
	l.file.Close() // the write has reported what is wrong
}
