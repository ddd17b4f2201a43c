package cli

import "os"

// reloadSignals returns no signal: Windows has none that means to read files again.
func reloadSignals() []os.Signal { return nil }
