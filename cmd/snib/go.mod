module github.com/sniblock/snib/cmd/snib

go 1.26.0

require (
	github.com/redis/rueidis v1.0.79
	github.com/rogpeppe/go-internal v1.16.0
	github.com/sniblock/snib v0.0.0
	github.com/sniblock/snib/redislock v0.0.0
	github.com/sniblock/snib/sqlitelock v0.0.0
	github.com/spf13/cobra v1.10.2
	github.com/spf13/pflag v1.0.9
	golang.org/x/sys v0.49.0
)

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/ncruces/go-sqlite3 v0.35.6 // indirect
	github.com/ncruces/go-sqlite3-wasm/v6 v6.3.35304 // indirect
	github.com/ncruces/julianday v1.0.0 // indirect
	golang.org/x/tools v0.50.0 // indirect
)

replace (
	github.com/sniblock/snib => ../..
	github.com/sniblock/snib/redislock => ../../redislock
	github.com/sniblock/snib/sqlitelock => ../../sqlitelock
)
