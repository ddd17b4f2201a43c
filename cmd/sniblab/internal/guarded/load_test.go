package guarded

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/rueidis"

	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock/redisfence"
)

// A writer appends the entry, "TOKEN/OWNER ", to the history, after a claim if the
// guard has one.
type writer func(ctx context.Context, h fence.Hold, entry string) error

// runWriters runs 64 writers at the same time. Their tokens are close to the
// greatest one so far, so that many are stale and some are equal. It returns how
// often each hold's write succeeded.
func runWriters(t *testing.T, write writer) map[string]int {
	t.Helper()
	var mu sync.Mutex
	wrote := make(map[string]int)
	var greatest, stale, conflicts atomic.Uint64
	greatest.Store(100)
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 7))
			for i := range 16 {
				h := hold{"account/42", greatest.Load() - 1 + r.Uint64N(3), fmt.Sprint(w, ".", i)}
				m, err := fence.Of(h)
				if err != nil {
					t.Error(err)
					return
				}
				entry := fmt.Sprintf("%d/%s ", h.token, m.Owner)
				err = write(t.Context(), h, entry)
				for isRetryable(err) {
					err = write(t.Context(), h, entry)
				}
				switch {
				case err == nil:
					mu.Lock()
					wrote[entry]++
					greatest.Store(max(greatest.Load(), h.token))
					mu.Unlock()
				case errors.Is(err, fence.ErrStale):
					stale.Add(1)
				case errors.Is(err, fence.ErrConflict):
					conflicts.Add(1)
				default:
					t.Errorf("%+v: %v", h, err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d holds wrote, %d were stale, %d in conflict", len(wrote), stale.Load(), conflicts.Load())
	if len(wrote) < 3 || stale.Load() < 20 || conflicts.Load() == 0 {
		t.Error("there was no contest")
	}
	return wrote
}

// isRetryable reports whether the database asks to retry because of a conflict
// between transactions.
func isRetryable(err error) bool {
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	return errors.As(err, &pg) && pg.Code == "40001" || errors.As(err, &my) && my.Number == 1213
}

// checkHistory checks the data itself: the tokens never decrease, no hold writes again after
// another one, and all successful writes are there.
func checkHistory(t *testing.T, history string, wrote map[string]int) {
	t.Helper()
	var last uint64
	var lastOwner string
	for entry := range strings.FieldsSeq(history) {
		var token uint64
		var owner string
		if _, err := fmt.Sscanf(strings.Replace(entry, "/", " ", 1), "%d %s", &token, &owner); err != nil {
			t.Fatalf("entry %q: %v", entry, err)
		}
		if token < last || token == last && owner != lastOwner {
			t.Errorf("%d of %s was written after %d of %s", token, owner, last, lastOwner)
		}
		last, lastOwner = token, owner
		wrote[entry+" "]--
	}
	for entry, n := range wrote {
		if n > 0 {
			t.Errorf("%s was written, and is not there", entry)
		}
	}
}

func TestSQLUnderLoad(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			db := d.open(t)
			g := fence.SQL{DB: db, Dialect: d.dialect}
			if err := g.Create(t.Context()); err != nil {
				t.Fatal(err)
			}
			wrote := runWriters(t, func(ctx context.Context, h fence.Hold, entry string) error {
				handle, err := g.Open(ctx, h)
				if err != nil {
					return err
				}
				return handle.Tx(ctx, nil, func(tx *sql.Tx) error {
					var history string // read, modify, write
					if err := tx.QueryRowContext(ctx, "SELECT history FROM account WHERE id = 42").Scan(&history); err != nil {
						return err
					}
					text := "UPDATE account SET history = ? WHERE id = 42"
					if d.dialect == fence.Postgres {
						text = strings.Replace(text, "?", "$1", 1)
					}
					_, err := tx.ExecContext(ctx, text, history+entry)
					return err
				})
			})
			checkHistory(t, history(t, db), wrote)
		})
	}
}

func TestColumnsUnderLoad(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			db := d.open(t)
			c := addColumns(t, d, db)
			set, where, err := c.Clauses(2)
			if err != nil {
				t.Fatal(err)
			}
			text := "UPDATE account SET history = " + d.concat + ", " + set + " WHERE id = 42 AND " + where
			wrote := runWriters(t, func(ctx context.Context, h fence.Hold, entry string) error {
				m, err := fence.Of(h)
				if err != nil {
					return err
				}
				result, err := db.ExecContext(ctx, text, entry, m.Token, m.Owner, m.Token, m.Token, m.Owner)
				if err != nil {
					return err
				}
				if n, err := result.RowsAffected(); err != nil || n == 1 {
					return err
				}
				if err = c.Verdict(ctx, db, m, 42); err == nil {
					err = errors.New("nothing was written, and nothing is wrong")
				}
				return err
			})
			checkHistory(t, history(t, db), wrote)
		})
	}
}

func history(t *testing.T, db *sql.DB) (text string) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT history FROM account WHERE id = 42").Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

func TestRedisUnderLoad(t *testing.T) {
	client := openRedis(t)
	g := redisfence.Guard{Client: client, Key: "{account/42}:fence"}
	wrote := runWriters(t, func(ctx context.Context, h fence.Hold, entry string) error {
		handle, err := g.Open(ctx, h)
		if err != nil {
			return err
		}
		_, err = handle.Do(ctx, "APPEND", "{account/42}:history", entry)
		return err
	})
	answer, err := client.Do(t.Context(), client.B().Get().Key("{account/42}:history").Build()).ToString()
	if err != nil {
		t.Fatal(err)
	}
	checkHistory(t, answer, wrote)
}

func openRedis(t testing.TB) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{redistest.Single(t).Addr()},
		DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}
