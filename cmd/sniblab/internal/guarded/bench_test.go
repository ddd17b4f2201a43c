package guarded

import (
	"database/sql"
	"testing"

	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/redislock/redisfence"
)

// BenchmarkUpdate measures the cost of a guard: an UPDATE of a row without a guard,
// with the guard's columns, and in a transaction after the guard's row, and the
// same transaction without the guard.
func BenchmarkUpdate(b *testing.B) {
	for _, d := range databases {
		if d.name == "PostgresRepeatable" || d.name == "MariaDBFoundRows" {
			continue
		}
		b.Run(d.name, func(b *testing.B) {
			ctx, db := b.Context(), d.open(b)
			c := addColumns(b, d, db)
			g := fence.SQL{DB: db, Dialect: d.dialect}
			if err := g.Create(ctx); err != nil {
				b.Fatal(err)
			}
			h, err := g.Open(ctx, hold{"account/42", 7, "o"})
			if err != nil {
				b.Fatal(err)
			}
			text := "UPDATE account SET balance = ? WHERE id = 42"
			if d.dialect == fence.Postgres {
				text = "UPDATE account SET balance = $1 WHERE id = 42"
			}
			n := 0
			update := func(tx *sql.Tx) error {
				n++
				_, err := tx.ExecContext(ctx, text, n)
				return err
			}
			for _, way := range []struct {
				name string
				run  func() error
			}{
				{"Plain", func() error { n++; _, err := db.ExecContext(ctx, text, n); return err }},
				{"Columns", func() error { n++; return c.Update(ctx, db, h.Mark(), 42, map[string]any{"balance": n}) }},
				{"PlainTx", func() error {
					tx, err := db.BeginTx(ctx, nil)
					if err != nil {
						return err
					}
					if err = update(tx); err != nil {
						return err
					}
					return tx.Commit()
				}},
				{"Tx", func() error { return h.Tx(ctx, nil, update) }},
			} {
				b.Run(way.name, func(b *testing.B) {
					for b.Loop() {
						if err := way.run(); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		})
	}
}

func BenchmarkRedisSet(b *testing.B) {
	ctx, client := b.Context(), openRedis(b)
	h, err := redisfence.Guard{Client: client, Key: "{a}:fence"}.Open(ctx, hold{"a", 7, "o"})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("Plain", func(b *testing.B) {
		for b.Loop() {
			if err := client.Do(ctx, client.B().Set().Key("{a}:x").Value("v").Build()).Error(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Guarded", func(b *testing.B) {
		for b.Loop() {
			if _, err := h.Do(ctx, "SET", "{a}:x", "v"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
