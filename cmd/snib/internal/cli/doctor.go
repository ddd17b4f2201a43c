package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

// doctorTimeout is how long snib doctor waits for a store. A slower store is no place for locks.
const doctorTimeout = 30 * time.Second

func (a *app) newDoctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "doctor [URL]",
		Short:   "check a store: its promises here, and the assumptions that are not met",
		Example: doctorExamples,
		Long:    doctorNotes,
		Args:    takes(cobra.MaximumNArgs(1)),

		ValidArgsFunction: a.completeURL,
	}
	output := addOutput(cmd, "table", "json")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if err := a.setStoreURL(args); err != nil {
			return err
		}
		return a.withStore(backend.Take, func(ctx context.Context, s *backend.Store) error {
			ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
			defer cancel()
			return a.doctor(ctx, s, output.value)
		})
	}
	return cmd
}

// setStoreURL uses the URL in args, if there is one.
func (a *app) setStoreURL(args []string) error {
	if len(args) == 0 {
		return nil
	}
	if a.urlFlag.Changed {
		return usagef("the store is named twice: by --url, and as an argument")
	}
	if a.url = args[0]; a.url == "" {
		return errEmptyURL("the argument")
	}
	return nil
}

func (a *app) doctor(ctx context.Context, s *backend.Store, output string) error {
	found, err := diagnose(ctx, s, a.configFindings())
	if err != nil {
		return err
	}
	err = a.print(output, result{
		document: func() any { return doctorJSON{"snib.doctor/1", s.URL, found} },
		text:     func() string { return describeStore(s, found) },
	})
	if err == nil && hasUnmet(found) {
		return silentExit(exitFound)
	}
	return err
}

// diagnose returns all findings about a store, with those that are given. That no lock could be
// taken is an error, unless a finding may explain it.
func diagnose(ctx context.Context, s *backend.Store, more []backend.Finding) ([]backend.Finding, error) {
	found, err := s.Examine(ctx)
	if err != nil {
		return nil, err
	}
	found = append(found, more...)
	trial := backend.Finding{Check: "lock", Verdict: backend.Note, Value: "not tried: it would run code of the table's owner with your rights"}
	if !slices.ContainsFunc(found, backend.Finding.RunsForeignCode) {
		trial, err = tryLock(ctx, s)
	}
	switch {
	case err != nil && !hasUnmet(found):
		return nil, fmt.Errorf("%s: %w", s.URL, err)
	case err != nil:
		trial = backend.Finding{Check: "lock", Verdict: backend.Unmet, Value: message(err), Advice: "fix the findings above, and run snib doctor again"}
	}
	found = append(found, trial)
	for _, w := range s.Info().Unmet {
		if !slices.ContainsFunc(found, func(f backend.Finding) bool { return f.Tells(w) }) {
			found = append(found, backend.Finding{Check: "driver", Verdict: backend.Unmet, Value: w})
		}
	}
	return found, nil
}

// hasUnmet reports whether a finding is Unmet.
func hasUnmet(found []backend.Finding) bool {
	return slices.ContainsFunc(found, func(f backend.Finding) bool { return f.Verdict == backend.Unmet })
}

// tryLock acquires, renews and releases a lock of its own, twice. If the store withholds locks
// for a while, that is a finding. If the store can't be used, that is an error.
func tryLock(ctx context.Context, s *backend.Store) (backend.Finding, error) {
	host, _ := os.Hostname() // only people read it
	req := driver.Request{
		Name: "snib-doctor/" + rand.Text(), NoWait: true, TTL: defaultTTLFor(s.Info()),
		Holder: driver.Holder{Host: host, PID: os.Getpid(), Label: "snib doctor"},
	}
	var last uint64
	began := time.Now()
	for range 2 {
		req.ID = rand.Text()
		lease, err := s.Acquire(ctx, req)
		if left, ok := backend.Grace(err); ok {
			return backend.Finding{Check: "lock", Verdict: backend.Note, Value: withheldText(left), Advice: "try again then"}, nil
		}
		if err != nil {
			return backend.Finding{}, err
		}
		renewed := s.Renew(ctx, []driver.Lease{lease})[0].Err
		if err := errors.Join(renewed, lease.Release(ctx)); err != nil {
			return backend.Finding{}, err
		}
		token := lease.Grant().Token
		if s.Info().Fencing > driver.FencingNone && token <= last {
			return backend.Finding{
				Check: "tokens", Verdict: backend.Unmet, Value: fmt.Sprintf("token %d was granted after %d", token, last),
				Advice: "report it: this is a bug in snib, or the store loses its memory",
			}, nil
		}
		last = token
	}
	return backend.Finding{
		Check: "lock", Verdict: backend.Good,
		Value: fmt.Sprintf("taken, renewed and freed twice in %v; tokens grow", time.Since(began).Round(10*time.Microsecond)),
	}, nil
}

// describeStore returns what was found in a store, and what it promises, for people.
func describeStore(s *backend.Store, found []backend.Finding) string {
	var b strings.Builder
	writeField(&b, "store", printable(s.URL))
	for _, f := range found {
		text := f.Check + ": " + f.Value
		if f.Advice != "" {
			text += " - " + f.Advice
		}
		writeField(&b, string(f.Verdict), printable(text))
	}
	info := s.Info()
	writeField(&b, "fencing", describeFencing(info.Fencing))
	for _, text := range info.Assumptions { // what is unmet is among the findings
		writeField(&b, "rests on", printable(text))
	}
	return b.String()
}
