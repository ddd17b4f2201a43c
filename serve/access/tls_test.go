package access

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// dialTLS returns the state of a handshake on both sides.
func dialTLS(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			err = conn.(*tls.Conn).Handshake()
			conn.Close()
		}
		accepted <- err
	}()
	conn, err := tls.Dial("tcp", l.Addr().String(), client)
	if err != nil {
		<-accepted
		return tls.ConnectionState{}, err
	}
	defer conn.Close()
	// In TLS 1.3 a client learns only later that its certificate was refused.
	return conn.ConnectionState(), <-accepted
}

func TestCertificatesReload(t *testing.T) {
	dir := t.TempDir()
	first, second := livetest.NewAuthority(t), livetest.NewAuthority(t)
	files := TLSFiles{
		Cert:     filepath.Join(dir, livetest.CertFile),
		Key:      filepath.Join(dir, livetest.KeyFile),
		ClientCA: filepath.Join(dir, livetest.AuthorityFile),
	}
	first.Write(t, dir, first.Issue(t, x509.Certificate{}))
	certs, err := LoadCertificates(files)
	if err != nil {
		t.Fatal(err)
	}
	config := certs.Config() // of a listener that goes on
	trusting := func(a *livetest.Authority, cert ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: a.Pool(), ServerName: "localhost", Certificates: cert, NextProtos: []string{"h2", "http/1.1"}}
	}

	state, err := dialTLS(t, config, trusting(first, first.Issue(t, x509.Certificate{})))
	if err != nil || state.NegotiatedProtocol != "h2" {
		t.Errorf("handshake: %v with protocol %q, want h2", err, state.NegotiatedProtocol)
	}
	if _, err := dialTLS(t, config, trusting(first)); err != nil {
		t.Errorf("handshake without a certificate: %v, want nil: the client may have a token", err)
	}
	expired := first.Issue(t,
		x509.Certificate{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(-time.Minute)})
	for name, cert := range map[string]tls.Certificate{"expired": expired, "of another authority": second.Issue(t, x509.Certificate{})} {
		if _, err := dialTLS(t, config, trusting(first, cert)); err == nil {
			t.Errorf("a certificate that is %s was accepted", name)
		}
	}

	// A bad file changes nothing.
	if err := os.WriteFile(files.Cert, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := certs.Reload(); err == nil || !strings.Contains(err.Error(), files.Cert) {
		t.Errorf("Reload with a bad certificate = %v, want an error that names the file", err)
	}
	if _, err := dialTLS(t, config, trusting(first)); err != nil {
		t.Errorf("handshake after a bad reload: %v", err)
	}

	second.Write(t, dir, second.Issue(t, x509.Certificate{}))
	if err := certs.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, err := dialTLS(t, config, trusting(second, second.Issue(t, x509.Certificate{}))); err != nil {
		t.Errorf("handshake after a reload: %v", err)
	}
	if _, err := dialTLS(t, config, trusting(second, first.Issue(t, x509.Certificate{}))); err == nil {
		t.Error("a certificate of the authority before was accepted after a reload")
	}
}

func TestBadTLSFiles(t *testing.T) {
	dir := t.TempDir()
	livetest.Certify(t, dir)
	cert, key := filepath.Join(dir, livetest.CertFile), filepath.Join(dir, livetest.KeyFile)
	other := t.TempDir()
	livetest.Certify(t, other)
	open := filepath.Join(other, "open.pem")
	if err := os.WriteFile(open, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		files TLSFiles
		want  string
	}{
		{"Missing", TLSFiles{Cert: cert, Key: key + "x"}, key + "x"},
		{"OtherKey", TLSFiles{Cert: cert, Key: filepath.Join(other, livetest.KeyFile)}, "private key does not match"},
		{"EndlessCert", TLSFiles{Cert: "/dev/zero", Key: key}, "--tls-cert, /dev/zero, is larger than 4 MiB"},
		{"OpenKey", TLSFiles{Cert: cert, Key: open}, "chmod"},
		{"EndlessAuthority", TLSFiles{Cert: cert, Key: key, ClientCA: "/dev/zero"}, "--client-ca, /dev/zero, is larger than 4 MiB"},
		{"NoAuthority", TLSFiles{Cert: cert, Key: key, ClientCA: key}, "no certificate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := LoadCertificates(tt.files); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q in it", err, tt.want)
			}
		})
	}
}

// TestCertificatesEnd checks what a client learns on a connection that outlives its certificate, or
// that of the authority.
func TestCertificatesEnd(t *testing.T) {
	for _, isClient := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			authority, dir := livetest.NewAuthority(t), t.TempDir() // its end is in a day
			authority.Write(t, dir, authority.Issue(t, x509.Certificate{}))
			certs, err := LoadCertificates(TLSFiles{Cert: filepath.Join(dir, livetest.CertFile),
				Key: filepath.Join(dir, livetest.KeyFile), ClientCA: filepath.Join(dir, livetest.AuthorityFile)})
			if err != nil {
				t.Fatal(err)
			}
			template, want := x509.Certificate{NotAfter: time.Now().Add(48 * time.Hour)}, "no authority"
			if isClient {
				template.NotAfter, want = time.Now().Add(24*time.Hour), "was valid until 2000-01-02T00:00:00Z"
			}
			leaf, err := x509.ParseCertificate(authority.Issue(t, template).Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			r, chain := request(""), []*x509.Certificate{leaf}
			r.TLS = &tls.ConnectionState{PeerCertificates: chain, VerifiedChains: [][]*x509.Certificate{chain}}
			id, _ := certificateIdentity(r, certs) // it has one
			policy := &Policy{certificates: []certificateEntry{{dns: "localhost"}}}
			if _, err := id(policy); err != nil || len(certs.verified) != 1 {
				t.Errorf("the client is refused: %v; or %v is not kept", err, certs.verified)
			}
			certs.config.Load().ClientCAs = x509.NewCertPool() // so a second verification would fail
			if _, err := id(policy); err != nil {
				t.Errorf("a second request of the client is refused: %v", err)
			}
			time.Sleep(24*time.Hour + time.Second)
			if _, err := id(policy); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a day later the error is %v, want %q in it", err, want)
			}
		})
	}
}
