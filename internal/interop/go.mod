module github.com/sniblock/snib/internal/interop

go 1.26.0

require (
	github.com/bsm/redislock v0.9.4
	github.com/go-redsync/redsync/v4 v4.18.1
	github.com/go-zookeeper/zk v1.0.4
	github.com/redis/go-redis/v9 v9.23.0
	github.com/redis/rueidis v1.0.79
	github.com/sniblock/snib v0.0.0
	github.com/sniblock/snib/redislock v0.0.0
	github.com/sniblock/snib/redlock v0.0.0
	github.com/sniblock/snib/zklock v0.0.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace (
	// Of redsync's other pools, at which go mod tidy looks as well.
	github.com/redis/rueidis/rueidiscompat => github.com/redis/rueidis/rueidiscompat v1.0.69
	github.com/sniblock/snib => ../../
	github.com/sniblock/snib/redislock => ../../redislock
	github.com/sniblock/snib/redlock => ../../redlock
	github.com/sniblock/snib/zklock => ../../zklock
)
