package cli

import (
	"context"
	"encoding/json"
	"os"
	"strings"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

// heldVar is the variable in which a child finds the holds that it runs under, outermost first: a JSON array, because
// names may contain anything but NUL.
const heldVar = "SNIB_HELD"

// A held is one hold that we run under.
type held struct {
	Store string `json:"store"` // its URL, without secrets
	Name  string `json:"name"`
	Owner string `json:"owner"`
}

// heldAround reads the holds that this process runs under.
func heldAround() ([]held, error) {
	text := os.Getenv(heldVar)
	if text == "" {
		return nil, nil
	}
	var around []held
	if err := json.Unmarshal([]byte(text), &around); err != nil {
		return nil, fail(exitConfig, "%s is not what snib writes there; unset it", heldVar)
	}
	return around, nil
}

// checkAround is checkNested for what our environment says.
func checkAround(ctx context.Context, s *backend.Store, name string) error {
	around, err := heldAround()
	if err != nil {
		return err
	}
	return checkNested(ctx, s, name, around)
}

// checkNested refuses a lock that this process runs under already: it would wait for itself for ever. A process that
// outlived the run it was started by still has the variable, so the store is asked whether the hold is there.
func checkNested(ctx context.Context, s *backend.Store, name string, around []held) error {
	for _, h := range around {
		if h.Name != name { // the store may have been named in another way
			continue
		}
		st, err := status(ctx, s, name)
		if err != nil {
			return err
		}
		if holding(st, h.Owner) != nil {
			return usagef("this command already runs under %s: a nested run would wait for itself; drop the inner one",
				printable(name))
		}
	}
	return nil
}

// holding finds an owner's hold in st, or nil.
func holding(st driver.Status, owner string) *driver.Holding {
	for i := range st.Holders {
		if st.Holders[i].Owner == owner {
			return &st.Holders[i]
		}
	}
	return nil
}

// environ is our environment with vars, "NAME=value" each, in the place of what it says about the same names.
func environ(vars ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !overridden(kv, vars) {
			env = append(env, kv)
		}
	}
	return append(env, vars...)
}

func overridden(kv string, vars []string) bool {
	name, _, _ := strings.Cut(kv, "=")
	for _, v := range vars {
		if strings.HasPrefix(v, name+"=") {
			return true
		}
	}
	return false
}
