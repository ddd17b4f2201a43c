package guarded

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/lib/pq"

	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/rowstest"
	"github.com/sniblock/snib/pglock"
)

// TestTransactionsOfPQ checks the locks of pglock in transactions of lib/pq.
func TestTransactionsOfPQ(t *testing.T) {
	db := open(t, "postgres", pgtest.Start(t).URL())
	rowstest.Transactions{
		DB:         db,
		Limit:      50 * time.Millisecond,
		Waiters:    "SELECT count(*) FROM pg_locks WHERE NOT granted",
		Connection: "SELECT pg_backend_pid()",
		Kill:       "SELECT pg_terminate_backend(%d)",
		Begin: func(t testing.TB) *rowstest.Transaction {
			sqlTx, job := rowstest.SQLTransaction(t, db)
			tx := pglock.SQLTx(sqlTx)
			job.Lock = func(ctx context.Context, name string, wait time.Duration) error {
				return pglock.Tx(ctx, tx, name, wait)
			}
			job.Row = func(ctx context.Context, id int, wait time.Duration) (status string, err error) {
				err = pglock.Row(ctx, tx, wait, "SELECT status FROM orders WHERE id = $1", id).Scan(&status)
				return status, err
			}
			return job
		},
	}.Run(t)
}

// TestIsOwnerOfPQ checks holds in transactions of lib/pq.
func TestIsOwnerOfPQ(t *testing.T) {
	url := pgtest.Start(t).URL()
	db := open(t, "postgres", url)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	d, err := pglock.New(pool)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	rowstest.IsOwner(t, d, func(name string, token uint64) error {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		return d.IsOwner(t.Context(), pglock.SQLTx(tx), name, token)
	})
}
