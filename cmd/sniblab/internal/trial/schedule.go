package trial

import "math/rand/v2"

// A step is one fault of a schedule. Its number chooses what is random about it.
type step struct {
	fault  fault
	client int // the number of the victim
	number uint32
}

// newSchedule chooses the faults of a trial by its seed.
func newSchedule(c Target, among []fault, seed uint64) []step {
	n := faultsPerTrial
	if c.IsControl() {
		n = controlFaults
	}
	if len(among) == 0 { // the work itself is the schedule
		return nil
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	schedule := make([]step, n)
	for i := range schedule {
		schedule[i] = step{among[rng.IntN(len(among))], rng.IntN(len(names)), rng.Uint32()}
	}
	return schedule
}

// CheckFaults returns why a target can have none of some faults, nil for all.
func CheckFaults(c Target, only []string) error {
	_, err := faultsFor(c, only)
	return err
}
