module github.com/sniblock/snib/lab

go 1.26.0

require (
	github.com/charmbracelet/x/ansi v0.11.7
	github.com/go-zookeeper/zk v1.0.4
	github.com/jackc/pgx/v5 v5.12.0
	github.com/redis/rueidis v1.0.79
	github.com/sniblock/snib v0.0.0
	github.com/sniblock/snib/pglock v0.0.0
	github.com/sniblock/snib/redislock v0.0.0
	github.com/sniblock/snib/redlock v0.0.0
	github.com/sniblock/snib/zklock v0.0.0
)

require (
	github.com/clipperhouse/displaywidth v0.11.0 // indirect
	github.com/clipperhouse/uax29/v2 v2.7.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/lucasb-eyer/go-colorful v1.4.0 // indirect
	github.com/mattn/go-runewidth v0.0.23 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace (
	github.com/sniblock/snib => ../
	github.com/sniblock/snib/pglock => ../pglock
	github.com/sniblock/snib/redislock => ../redislock
	github.com/sniblock/snib/redlock => ../redlock
	github.com/sniblock/snib/zklock => ../zklock
)
