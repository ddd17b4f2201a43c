package wire

// A Diagnosis is what was found out about the store behind the service, as "snib doctor" does.
type Diagnosis struct {
	Findings []Finding `json:"findings"`
}

// A Finding is one thing that was checked.
type Finding struct {
	Check   string `json:"check"`
	Verdict string `json:"verdict"` // "ok", "note" or "unmet"
	Value   string `json:"value"`   // what was found, in words
	Advice  string `json:"advice,omitempty"`
}

// Leaks are what will not end by itself, or later than it should, as "snib leaks" finds it.
type Leaks struct {
	Leaks []Leak `json:"leaks"`
}

// A Leak is one of them.
type Leak struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`    // of the lock; a key in the store if it is foreign
	Problem string `json:"problem"` // in words
	Library string `json:"library,omitempty"`
	Unsure  bool   `json:"unsure,omitempty"` // it may be no lock
}
