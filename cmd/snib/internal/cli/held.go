package cli

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

// heldVar is the environment variable that lists the holds that a command runs under, outermost
// first. It is a JSON array, because names may contain any character but NUL.
const heldVar = "SNIB_HELD"

// An outerHold is one hold that this process runs under.
type outerHold struct {
	Store string `json:"store"` // its URL, without secrets
	Name  string `json:"name"`
	ID    string `json:"id"`
	Token uint64 `json:"token"`
}

// outerHolds returns the holds that this process runs under, as its environment lists them.
func outerHolds() ([]outerHold, error) {
	text := os.Getenv(heldVar)
	if text == "" {
		return nil, nil
	}
	var outer []outerHold
	if err := json.Unmarshal([]byte(text), &outer); err != nil {
		return nil, failf(exitConfig, "%s has a value that snib did not write; unset it", heldVar)
	}
	return outer, nil
}

// refuseNestedInEnv is refuseNested for the holds in our environment.
func refuseNestedInEnv(ctx context.Context, s *backend.Store, name string) error {
	outer, err := outerHolds()
	if err != nil {
		return err
	}
	return refuseNested(ctx, s, name, outer)
}

// refuseNested refuses a lock that this process already runs under: it would wait for itself
// forever. A process that outlives its snib run keeps the variable, so refuseNested asks the
// store whether the hold still exists.
func refuseNested(ctx context.Context, s *backend.Store, name string, outer []outerHold) error {
	for _, h := range outer {
		if h.Name != name { // the store may have been named in another way
			continue
		}
		st, err := s.Status(ctx, name)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(st.Holders, func(x driver.Holding) bool {
			return x.ID == h.ID || x.Token == h.Token && h.Store == s.URL // a service may hide ids
		}) {
			return usagef("this command already runs under %s: a nested run would wait for itself; drop the inner one",
				printable(name))
		}
	}
	return nil
}

// findHold returns the hold in st with an id, or nil. In place of the id, the digest of it will do
// that listings show.
func findHold(st driver.Status, id string) *driver.Holding {
	same := func(h driver.Holding) bool { return h.ID == id }
	i := slices.IndexFunc(st.Holders, same)
	if i < 0 {
		i = slices.IndexFunc(st.Holders, func(h driver.Holding) bool { return idDigest(h) == id && id != "" })
	}
	if i < 0 {
		return nil
	}
	return &st.Holders[i]
}

// environ returns our environment with vars added, each "NAME=value". They replace
// variables with the same names.
func environ(vars ...string) []string {
	return append(slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.ContainsFunc(vars, func(v string) bool { return strings.HasPrefix(v, name+"=") })
	}), vars...)
}
