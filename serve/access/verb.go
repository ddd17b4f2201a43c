package access

// A Verb is what somebody may do.
type Verb string

func allVerbs() []Verb { return []Verb{"read", "acquire", "break", "reserve", "admin"} }
