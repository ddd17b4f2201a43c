module github.com/sniblock/snib/serve

go 1.26.0

require (
	github.com/BurntSushi/toml v1.6.0
	github.com/coreos/go-oidc/v3 v3.21.0
	github.com/sniblock/snib v0.0.0
	golang.org/x/time v0.16.0
)

require (
	github.com/go-jose/go-jose/v4 v4.1.9 // indirect
	golang.org/x/oauth2 v0.38.0 // indirect
)

replace github.com/sniblock/snib => ../
