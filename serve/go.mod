module github.com/sniblock/snib/serve

go 1.26.0

require (
	github.com/BurntSushi/toml v1.6.0
	github.com/sniblock/snib v0.0.0
	golang.org/x/time v0.16.0
)

replace github.com/sniblock/snib => ../
