module github.com/sniblock/snib/examples

go 1.26.0

require (
	github.com/go-co-op/gocron/v2 v2.21.2
	github.com/go-sql-driver/mysql v1.10.1
	github.com/google/uuid v1.6.0
	github.com/jackc/pgx/v5 v5.12.0
	github.com/ncruces/go-sqlite3 v0.35.6
	github.com/sniblock/snib v0.0.0
	github.com/sniblock/snib/pglock v0.0.0
	github.com/sniblock/snib/sqlitelock v0.0.0
)

require filippo.io/edwards25519 v1.2.0 // indirect

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/jonboulle/clockwork v0.5.0 // indirect
	github.com/ncruces/go-sqlite3-wasm/v6 v6.3.35304 // indirect
	github.com/ncruces/julianday v1.0.0 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
	github.com/sniblock/snib/mysqllock v0.0.0
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace (
	github.com/sniblock/snib => ../
	github.com/sniblock/snib/pglock => ../pglock
	github.com/sniblock/snib/redislock => ../redislock
	github.com/sniblock/snib/sqlitelock => ../sqlitelock
)

replace github.com/sniblock/snib/mysqllock => ../mysqllock
