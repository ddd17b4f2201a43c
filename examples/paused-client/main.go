// Command paused-client shows what happens to data under a lock when the holder is stopped for
// longer than its lease and then resumed: without a guard, with a guard that checks only
// writes, and with a guard that is claimed before the data is read. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() {
	if isClient() {
		os.Exit(serve(os.Stdin, os.Stdout)) //nolint:forbidigo // the process is a client and nothing else
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "paused-client:", err)
		os.Exit(1) //nolint:forbidigo // nothing is left to be done
	}
}

// run runs all scenes on the store that the arguments name.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	var where location
	flags := flag.NewFlagSet("paused-client", flag.ContinueOnError)
	flags.StringVar(&where.Kind, "store", "sqlite", "where lock and data lie: sqlite, redis or postgres")
	flags.StringVar(&where.URL, "url", "", "redis://… or postgres://…, or the folder for sqlite; by default a new one")
	if err = flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; the options are -store and -url", flags.Arg(0))
	}
	if where.Kind == "sqlite" && where.URL == "" {
		if where.URL, err = os.MkdirTemp("", "paused-client-"); err != nil {
			return err
		}
		defer os.RemoveAll(where.URL) //nolint:errcheck // a temporary folder
	}
	fmt.Fprintf(out, "Store: %s. An account has %d; under a lock with a TTL of %v\nA adds %d, and B %d. Each line: "+
		"time, who, what, and the hold's fencing token.\n",
		where.Kind, openingBalance, ttl, deposits["A"], deposits["B"])
	for _, s := range scenes {
		if err := s.run(ctx, where, out); err != nil {
			return fmt.Errorf("scene %q: %w", s.title, err)
		}
	}
	return nil
}
