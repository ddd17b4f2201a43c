// Command ledger does the work of a day once, and no more than once, on whichever host comes
// first. Let cron start it on every host every ten minutes: a host that dies in the middle of the
// work, or whose work fails, is followed by the next one, until the work of the day is done.
//
//	go run ./ledger -store sqlite -url /tmp/data
//	go run ./ledger -store postgres -url postgres://localhost/data
//	go run ./ledger -store mysql -url 'user:password@tcp(localhost)/data'
//
// The same function serves a migration: its key is then the name of the migration. In MySQL and
// MariaDB a statement that changes a table ends the transaction, so there it must be one that does
// no harm when it is run again.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

func main() {
	var s store
	flag.StringVar(&s.Kind, "store", "sqlite", "sqlite, postgres or mysql")
	flag.StringVar(&s.URL, "url", ".", "the folder of the files of SQLite, or the database")
	day := flag.String("day", time.Now().UTC().Format(time.DateOnly), "the day, in UTC as all hosts have it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := report(ctx, s, *day)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(1) //nolint:forbidigo // nothing is left to be done
	}
}

// report counts what the ledger has, which stands for the report of a day.
func report(ctx context.Context, s store, day string) error {
	l, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	did, err := l.once(ctx, "report/"+day, func(ctx context.Context, tx *sql.Tx) error {
		var n int
		err := tx.QueryRowContext(ctx, "SELECT count(*) FROM ledger").Scan(&n)
		fmt.Fprintf(os.Stdout, "the report of %s: %d things were done before\n", day, n)
		return err
	})
	if err == nil && !did {
		fmt.Fprintf(os.Stdout, "the report of %s is done, or another host is doing it\n", day)
	}
	return err
}
