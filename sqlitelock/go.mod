module github.com/sniblock/snib/sqlitelock

go 1.26.0

require (
	github.com/ncruces/go-sqlite3 v0.35.6
	github.com/sniblock/snib v0.0.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/ncruces/go-sqlite3-wasm/v6 v6.3.35304 // indirect
	github.com/ncruces/julianday v1.0.0 // indirect
)

replace github.com/sniblock/snib => ../
