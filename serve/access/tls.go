package access

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A TLSFiles names the files of a TLS listener.
type TLSFiles struct {
	Cert     string // the certificate, and those between it and the authority
	Key      string
	ClientCA string // the authorities of clients' certificates; "": none is asked for
}

// A Certificates has the TLS configuration of a listener, which can be loaded again while it
// serves.
type Certificates struct {
	files  TLSFiles
	config atomic.Pointer[tls.Config]

	mu       sync.Mutex
	by       *tls.Config                     // which verified has answers of
	verified map[[sha256.Size]byte]time.Time // until when client certificates are verified
}

// maxVerified bounds the memory for certificates that were verified.
const maxVerified = 10_000

// LoadCertificates reads the files.
func LoadCertificates(files TLSFiles) (*Certificates, error) {
	c := &Certificates{files: files}
	if err := c.Reload(); err != nil {
		return nil, err
	}
	return c, nil
}

// Reload reads the files again. If one of them is bad, the listener keeps what it has. Connections
// that exist go on, but a client whose certificate the new authorities don't verify is not admitted
// any more.
func (c *Certificates) Reload() error {
	config, err := c.files.load()
	if err != nil {
		return err
	}
	c.config.Store(config)
	return nil
}

// Config returns a configuration that uses for each new connection what was loaded last.
func (c *Certificates) Config() *tls.Config {
	config := c.config.Load().Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.config.Load(), nil }
	return config
}

// verifies reports whether the authorities that were loaded last admit the chain of a client
// certificate, as those of its handshake did. It computes that once, and again after a reload.
func (c *Certificates) verifies(chain []*x509.Certificate) bool {
	config, leaf := c.config.Load(), chain[0]
	key := sha256.Sum256(leaf.Raw) // each connection has an x509.Certificate of its own
	if c.wasVerified(config, key) {
		return true
	}
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	chains, err := leaf.Verify(x509.VerifyOptions{Roots: config.ClientCAs, Intermediates: between,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return false
	}
	first := slices.MinFunc(chains[0], func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == config {
		c.verified[key] = first.NotAfter
	}
	return true
}

// wasVerified reports whether a certificate was verified by config, and still is.
func (c *Certificates) wasVerified(config *tls.Config, key [sha256.Size]byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by != config || len(c.verified) >= maxVerified {
		c.by, c.verified = config, map[[sha256.Size]byte]time.Time{}
	}
	return time.Now().Before(c.verified[key])
}

func (f TLSFiles) load() (*tls.Config, error) {
	key, err := loadFile(f.Key, "the key of TLS", true)
	if err != nil {
		return nil, err
	}
	cert, err := loadFile(f.Cert, "--tls-cert", false)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s and --tls-key %s: %w", f.Cert, f.Key, err)
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
	}
	if f.ClientCA == "" {
		return config, nil
	}
	authorities, err := loadFile(f.ClientCA, "--client-ca", false)
	if err != nil {
		return nil, err
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("--client-ca %s: there is no certificate in it; it must be a PEM file", f.ClientCA)
	}
	// A client without a certificate may have a token instead. One that shows a bad certificate is
	// told so by the handshake.
	config.ClientAuth = tls.VerifyClientCertIfGiven
	// A resumed session would bring back a certificate that the authorities of today do not
	// verify.
	config.SessionTicketsDisabled = true
	return config, nil
}
