package backend

// examineAccess finds nothing: who may use the file is decided by its access list, which snib does
// not judge.
func examineAccess(string) ([]Finding, error) { return nil, nil }
