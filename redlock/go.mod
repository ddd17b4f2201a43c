module github.com/sniblock/snib/redlock

go 1.26.0

require (
	github.com/redis/rueidis v1.0.79
	github.com/sniblock/snib v0.0.0
	github.com/sniblock/snib/redislock v0.0.0
)

require golang.org/x/sys v0.49.0 // indirect

replace (
	github.com/sniblock/snib => ../
	github.com/sniblock/snib/redislock => ../redislock
)
