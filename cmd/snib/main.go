// Command snib runs programs under a distributed lock, and shows and frees such locks. Run
// "snib help" for its documentation.
package main

import (
	"os"

	"github.com/sniblock/snib/cmd/snib/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:]))
}
