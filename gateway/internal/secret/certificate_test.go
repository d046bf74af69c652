package secret

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
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// issue writes a self-signed certificate and its key.
func issue(t *testing.T, cert, key, name string, ends time.Time) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: ends.Add(-48 * time.Hour), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// handshake returns the name in the certificate that a client gets.
func handshake(t *testing.T, c *Certificate) string {
	t.Helper()
	got, err := c.TLS().GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Leaf.Subject.CommonName
}

func TestCertificatesAreRenewed(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	day := time.Now().Add(24 * time.Hour)
	issue(t, cert, key, "first", day)
	c, err := openCertificate(cert, key, func() time.Time { return time.Now().Add(time.Hour) })
	if err != nil {
		t.Fatal(err)
	}
	core, lines := observer.New(zap.DebugLevel)
	c.Log = zap.New(core)
	if got := handshake(t, c); got != "first" {
		t.Errorf("got %q", got)
	}
	// Half of a renewal: the certificate is new, the key is not.
	issue(t, cert, key+".new", "second", day)
	for range 3 {
		if got := handshake(t, c); got != "first" {
			t.Errorf("with half of a pair: got %q", got)
		}
	}
	if err := os.Rename(key+".new", key); err != nil {
		t.Fatal(err)
	}
	if got := handshake(t, c); got != "second" {
		t.Errorf("renewed: got %q", got)
	}
	// No failure replaces the certificate in use.
	for what, spoil := range map[string]func() error{
		"gone":    func() error { return os.Remove(key) },
		"garbage": func() error { return os.WriteFile(cert, []byte("no certificate"), 0o600) },
		"empty":   func() error { return os.WriteFile(key, nil, 0o600) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if got := handshake(t, c); got != "second" {
			t.Errorf("%s: got %q", what, got)
		}
	}
	issue(t, cert, key, "third", day)
	if got := handshake(t, c); got != "third" {
		t.Errorf("repaired: got %q", got)
	}
	if n := lines.FilterMessage("a port has a new certificate").Len(); n != 2 {
		t.Errorf("%d renewals were logged, want 2", n)
	}
	told := lines.FilterMessage("a port keeps its old certificate").Len()
	if told < 2 || told > 4 {
		t.Errorf("%d failures were logged, want one for each", told)
	}
}

func TestRefusedCertificates(t *testing.T) {
	dir := t.TempDir()
	cert, key, old, oldKey := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "old.pem"), filepath.Join(dir, "oldkey.pem")
	issue(t, cert, key, "gateway", time.Now().Add(time.Hour))
	issue(t, old, oldKey, "gateway", time.Now().Add(-time.Hour))
	open, shared := filepath.Join(dir, "open.pem"), filepath.Join(dir, "shared.pem")
	for path, mode := range map[string]os.FileMode{open: 0o644, shared: 0o640} {
		data, err := os.ReadFile(key)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OpenCertificate(cert, shared); err != nil {
		t.Errorf("a key that its group may read: %v", err)
	}
	for _, c := range []struct{ cert, key, want string }{
		{cert, open, "the key file " + open + " has mode 0644, which gives others access: chmod g-w,o-rwx"},
		{cert, oldKey, "private key does not match public key"},
		{old, oldKey, "the certificate " + old + " expired on "},
		{key, key, "the certificate " + key + " and the key"},
		{dir + "/none", key, "cannot open the certificate file"},
		{cert, dir, "is not a regular file"},
	} {
		if _, err := OpenCertificate(c.cert, c.key); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

// TestClientsNeedACertificate: a client's certificate must come from an authority in the file, as it is at the handshake.
func TestClientsNeedACertificate(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	day := time.Now().Add(24 * time.Hour)
	for _, name := range []string{"server", "alice", "bob"} {
		issue(t, path(name+".pem"), path(name+".key"), name, day)
	}
	authorities := path("authorities.pem")
	trust := func(name string) {
		t.Helper()
		text, err := os.ReadFile(path(name + ".pem"))
		if err == nil {
			err = os.WriteFile(authorities, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	trust("alice")
	c, err := OpenCertificate(path("server.pem"), path("server.key"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := OpenAuthorities(authorities)
	if err != nil {
		t.Fatal(err)
	}
	core, logged := observer.New(zap.InfoLevel)
	a.Log, a.Port = zap.New(core), "functions"
	config := c.TLS("h2", "http/1.1")
	a.Require(config)
	connect := func(client string) error {
		t.Helper()
		mine := &tls.Config{InsecureSkipVerify: true} // the server's name is not what is tested
		if client != "" {
			pair, err := tls.LoadX509KeyPair(path(client+".pem"), path(client+".key"))
			if err != nil {
				t.Fatal(err)
			}
			mine.Certificates = []tls.Certificate{pair}
		}
		near, far := net.Pipe()
		defer near.Close()
		go func() {
			s := tls.Client(far, mine)
			_ = s.Handshake() // the server's side says what went wrong
			far.Close()
		}()
		return tls.Server(near, config).Handshake()
	}
	for client, want := range map[string]bool{"alice": true, "bob": false, "": false} {
		if err := connect(client); (err == nil) != want {
			t.Errorf("client %q: %v", client, err)
		}
	}
	trust("bob")
	for client, want := range map[string]bool{"alice": false, "bob": true} {
		if err := connect(client); (err == nil) != want {
			t.Errorf("after the change, client %q: %v", client, err)
		}
	}
	if err := os.WriteFile(authorities, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := connect("bob"); err != nil {
		t.Errorf("a file that cannot be used took effect: %v", err)
	}
	if err := connect("bob"); err != nil || logged.Len() != 1 {
		t.Errorf("error %v, %d lines were logged, expected one", err, logged.Len())
	}
	if _, err := OpenAuthorities(authorities); err == nil || !strings.Contains(err.Error(), "no certificate in PEM") {
		t.Errorf("a file without certificates: %v", err)
	}
}
