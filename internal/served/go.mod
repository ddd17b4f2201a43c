module github.com/sniblock/snib/internal/served

go 1.26.0

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
	github.com/jackc/pgx/v5 v5.12.0
	github.com/redis/rueidis v1.0.79
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
	github.com/sniblock/snib v0.0.0
	github.com/sniblock/snib/pglock v0.0.0
	github.com/sniblock/snib/redislock v0.0.0
	github.com/sniblock/snib/remotelock v0.0.0
	github.com/sniblock/snib/serve v0.0.0
	github.com/sniblock/snib/serve/access v0.0.0
	github.com/sniblock/snib/sqlitelock v0.0.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/BurntSushi/toml v1.6.0 // indirect
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/ncruces/go-sqlite3 v0.35.6 // indirect
	github.com/ncruces/go-sqlite3-wasm/v6 v6.3.35304 // indirect
	github.com/ncruces/julianday v1.0.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/time v0.16.0 // indirect
)

replace (
	github.com/sniblock/snib => ../../
	github.com/sniblock/snib/pglock => ../../pglock
	github.com/sniblock/snib/redislock => ../../redislock
	github.com/sniblock/snib/remotelock => ../../remotelock
	github.com/sniblock/snib/serve => ../../serve
	github.com/sniblock/snib/serve/access => ../../serve/access
	github.com/sniblock/snib/sqlitelock => ../../sqlitelock
)
