module github.com/sniblock/snib/zklock

go 1.26.0

require (
	github.com/go-zookeeper/zk v1.0.4
	github.com/sniblock/snib v0.0.0
)

replace github.com/sniblock/snib => ../
