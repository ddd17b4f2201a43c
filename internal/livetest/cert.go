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

// The files that [Certify] writes, in PEM.
const (
	AuthorityFile = "authority.pem"
	CertFile      = "cert.pem"
	KeyFile       = "key.pem"
)

// Certify writes a certificate for 127.0.0.1 and localhost, its key, and the certificate of the
// authority that signed it, into a folder. It returns the configuration for clients.
func Certify(t testing.TB, dir string) *tls.Config {
	t.Helper()
	check := func(err error) {
		if err != nil {
			t.Fatalf("make a certificate: %v", err)
		}
	}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	authority := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "authority for tests"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	check(err)

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "localhost"},
		NotBefore:    authority.NotBefore,
		NotAfter:     authority.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		// Replicas are clients.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	certDER, err := x509.CreateCertificate(rand.Reader, cert, authority, key.Public(), authorityKey)
	check(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	check(err)

	write := func(name, kind string, der []byte) {
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		check(os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	write(AuthorityFile, "CERTIFICATE", authorityDER)
	write(CertFile, "CERTIFICATE", certDER)
	write(KeyFile, "PRIVATE KEY", keyDER)

	signed, err := x509.ParseCertificate(authorityDER)
	check(err)
	pool := x509.NewCertPool()
	pool.AddCert(signed)
	return &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}
}
