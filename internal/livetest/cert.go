package livetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The files that [Certify] and [Authority.Write] write, in PEM.
const (
	AuthorityFile = "authority.pem"
	CertFile      = "cert.pem"
	KeyFile       = "key.pem"
)

// Certify writes a certificate for 127.0.0.1 and localhost, its key, and the certificate of the
// authority that signed it, into a folder. It returns the configuration for clients.
func Certify(t testing.TB, dir string) *tls.Config {
	t.Helper()
	a := NewAuthority(t)
	a.Write(t, dir, a.Issue(t, x509.Certificate{}))
	return &tls.Config{RootCAs: a.Pool(), ServerName: "localhost", MinVersion: tls.VersionTLS12}
}

// An Authority signs certificates for tests.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns a new authority.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "authority for tests"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	Must(t, err, "make a certificate")
	cert, err := x509.ParseCertificate(der)
	Must(t, err, "make a certificate")
	return &Authority{cert, key}
}

// Pool returns the certificate of the authority, for those who believe it.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Issue signs a certificate for servers and clients. Fields of the template that are zero get
// usual values: names are 127.0.0.1 and localhost, and the end is that of the authority.
func (a *Authority) Issue(t testing.TB, template x509.Certificate) tls.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(2)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	// Replicas are clients.
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if template.Subject.CommonName == "" {
		template.Subject.CommonName = "localhost"
	}
	if len(template.DNSNames)+len(template.EmailAddresses)+len(template.URIs) == 0 {
		template.DNSNames = []string{"localhost"}
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	if template.NotBefore.IsZero() {
		template.NotBefore = a.cert.NotBefore
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = a.cert.NotAfter
	}
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, &template, a.cert, key.Public(), a.key)
	Must(t, err, "make a certificate")
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Write writes a certificate, its key, and the certificate of the authority into a folder.
func (a *Authority) Write(t testing.TB, dir string, cert tls.Certificate) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	Must(t, err, "make a certificate")
	write := func(name, kind string, der []byte) {
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		Must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600), "write a certificate")
	}
	write(AuthorityFile, "CERTIFICATE", a.cert.Raw)
	write(CertFile, "CERTIFICATE", cert.Certificate[0])
	write(KeyFile, "PRIVATE KEY", key)
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(t, err, "make a certificate")
	return key
}
