module github.com/sniblock/snib/internal/served

go 1.26.0

require (
	github.com/sniblock/snib v0.0.0
	github.com/sniblock/snib/remotelock v0.0.0
	github.com/sniblock/snib/serve v0.0.0
	github.com/sniblock/snib/sqlitelock v0.0.0
)

require (
	github.com/ncruces/go-sqlite3 v0.35.6 // indirect
	github.com/ncruces/go-sqlite3-wasm/v6 v6.3.35304 // indirect
	github.com/ncruces/julianday v1.0.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace (
	github.com/sniblock/snib => ../../
	github.com/sniblock/snib/remotelock => ../../remotelock
	github.com/sniblock/snib/serve => ../../serve
	github.com/sniblock/snib/sqlitelock => ../../sqlitelock
)
