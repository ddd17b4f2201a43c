module github.com/sniblock/snib/remotelock

go 1.26.0

require github.com/sniblock/snib v0.0.0

replace github.com/sniblock/snib => ../
