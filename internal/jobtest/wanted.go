package jobtest

import "github.com/sniblock/snib/driver"

// WithWanted returns req with an OnWanted that closes the channel. It panics if it is called again.
func WithWanted(req driver.Request) (driver.Request, <-chan struct{}) {
	wanted := make(chan struct{})
	req.OnWanted = func() { close(wanted) }
	return req, wanted
}
