// Command snib runs programs under a distributed lock, and shows and frees such locks. Run
// "snib help" for its documentation.
package main

import (
	"os"

	"github.com/sniblock/snib/cmd/snib/internal/cli"
	"github.com/sniblock/snib/lab/scene"
)

func main() {
	scene.Main() // a client of snib demo is a process of this program, too
	os.Exit(cli.Main(os.Args[1:]))
}
