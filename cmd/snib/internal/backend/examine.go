package backend

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/remotelock"
)

// A Verdict says what a finding means for locks.
type Verdict string

const (
	Good  Verdict = "ok"
	Note  Verdict = "note"  // worth knowing; breaks no promise
	Unmet Verdict = "unmet" // an assumption of a promise is not met
)

// A Finding is the result of one check of a store.
type Finding struct {
	Check   string   `json:"check"`            // what was checked, such as `version` or `eviction`
	Verdict Verdict  `json:"verdict"`          // `ok`, `note` or `unmet`
	Value   string   `json:"value"`            // what was found, in words
	Advice  string   `json:"advice,omitempty"` // what would be right, if not all is well
	Ahead   *float64 `json:"ahead,omitempty"`  // of a clock: for how long it is ahead of this host's; negative if it is behind
}

// Tells reports whether the finding is about the same setting as the driver's warning, which
// begins with the setting's name.
func (f Finding) Tells(warning string) bool {
	return strings.HasPrefix(warning, f.Check[strings.LastIndex(f.Check, " ")+1:]+" ")
}

// RunsForeignCode reports whether taking a lock would run somebody else's code with our
// permissions.
func (f Finding) RunsForeignCode() bool { return f.Check == "table" && f.Verdict == Unmet }

// Examine checks what the promises of a store depend on: its version, settings and clock. It
// returns an error if the store does not answer. If it lacks the permission to read something,
// that is a finding.
func (s *Store) Examine(ctx context.Context) ([]Finding, error) {
	var all []Finding
	var err error
	switch d := s.Driver.(type) {
	case *redislock.Driver:
		all, err = examineRedis(ctx, d, s.graceOff)
	case postgresDriver:
		all, err = examinePostgres(ctx, d.pool)
	case mySQLDriver:
		all, err = examineMySQL(ctx, d.db)
	case *etcdStore:
		if err = d.Ping(ctx); err == nil {
			all = examineEtcd(ctx, d.client)
		}
	case *zooKeeperStore:
		all, err = d.examine(ctx)
	case *redlockStore:
		all, err = d.examine(ctx)
	case *remotelock.Driver:
		all, err = examineService(ctx, d)
	default:
		if path, ok := s.file(); ok {
			all, err = examineFile(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.URL, err)
	}
	return append(all, secretFindings(s.secrets)...), nil
}

// How far a server's clock may differ from ours.
const (
	// maxSlewedOffset is the most that ntpd corrects by running the clock faster or slower. It
	// sets a clock that is further off to the right time, in one step, unless told otherwise.
	maxSlewedOffset = 128 * time.Millisecond
	maxClockOffset  = time.Second
)

// clockAdvice begins a sentence that says how to keep a clock right. The sentence ends with what
// depends on that clock.
const clockAdvice = "keep both clocks by NTP, set to slew and not to step them: "

// clockFinding judges a server's clock. consequence says what depends on it.
func clockFinding(ahead, roundTrip time.Duration, consequence string) Finding {
	exact := ahead.Round(time.Microsecond).Seconds()
	f := Finding{Check: "clock", Verdict: Good, Ahead: &exact, Value: fmt.Sprintf("within %v of this host's", max(ahead.Abs(), roundTrip/2, time.Millisecond).Round(time.Millisecond))}
	switch offset := ahead.Abs() - roundTrip/2; {
	case offset <= maxSlewedOffset:
		return f
	case offset <= maxClockOffset:
		f.Verdict = Note
	default:
		f.Verdict = Unmet
	}
	f.Advice = clockAdvice + consequence
	way := "ahead of"
	if ahead < 0 {
		way = "behind"
	}
	f.Value = fmt.Sprintf("%v %s this host's", ahead.Abs().Round(time.Millisecond), way)
	return f
}

// newFinding returns a finding that is Good if ok is true. Otherwise it has the
// verdict v and the advice.
func newFinding(check, value string, ok bool, v Verdict, advice string) Finding {
	if ok {
		return Finding{Check: check, Verdict: Good, Value: value}
	}
	return Finding{Check: check, Verdict: v, Value: value, Advice: advice}
}
