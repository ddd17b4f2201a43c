module github.com/sniblock/snib/serve

go 1.26.0

require (
	github.com/sniblock/snib v0.0.0
	github.com/sniblock/snib/remotelock v0.0.0
)

replace github.com/sniblock/snib => ../

replace github.com/sniblock/snib/remotelock => ../remotelock
