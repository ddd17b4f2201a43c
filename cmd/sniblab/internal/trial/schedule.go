package trial

import (
	"math/rand/v2"

	"github.com/sniblock/snib/cmd/sniblab/internal/servers"
)

// A step is one fault of a schedule. Its number chooses what is random about it.
type step struct {
	fault  servers.Fault
	client int // the number of the victim
	number uint32
}

// newSchedule chooses the faults of a trial by its seed.
func newSchedule(c Target, among []servers.Fault, seed uint64) []step {
	n := faultsPerTrial
	if c.IsControl() {
		n = controlFaults
	}
	if len(among) == 0 { // the work itself is the schedule
		return nil
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	next, schedule := servers.Schedule(rng, among), make([]step, n)
	for i := range schedule {
		schedule[i] = step{next(), rng.IntN(len(names)), rng.Uint32()}
	}
	return schedule
}
