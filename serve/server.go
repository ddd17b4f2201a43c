package serve

import (
	"log"
	"net/http"
	"time"
)

// NewServer returns a server for the service, which cuts off clients that are slow. It speaks
// HTTP/1.1 and HTTP/2, also without TLS. To end it, call [Service.Drain], and then Shutdown.
func (s *Service) NewServer() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: s, Protocols: protocols,
		// A deadline of an answer resets its stream, which the client does not take in either if it
		// reads nothing from the connection.
		HTTP2:             &http.HTTP2Config{WriteByteTimeout: writeTimeout},
		ErrorLog:          log.New(s.connections, "", 0), //nolint:forbidigo // it writes to Options.Log
		ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
}
