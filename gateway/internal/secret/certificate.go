package secret

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
)

// maxPEMBytes is more than any chain of certificates needs.
const maxPEMBytes = 1 << 20 //xebec:limit a certificate with its chain, and its key

// Certificate is a certificate and its key, in two PEM files that are read again when they change, so a renewal needs
// no restart. While the files do not match, which happens briefly during a renewal, the last matching pair is used. It
// is safe for concurrent use.
type Certificate struct {
	// Log receives renewals and failed ones; nil means no logging. Port names the port in them. Set both before the first
	// handshake.
	Log  *zap.Logger
	Port string

	mu        sync.Mutex
	cert, key File
	pair      *tls.Certificate
	failed    string // last failure that was logged
}

// OpenCertificate reads a certificate with its chain, and its key. Only the key's owner and group may have read
// permission on it.
func OpenCertificate(cert, key string) (*Certificate, error) {
	return openCertificate(cert, key, time.Now)
}

func openCertificate(cert, key string, now func() time.Time) (*Certificate, error) {
	c := &Certificate{
		cert: File{Path: cert, What: "certificate file", MaxBytes: maxPEMBytes, Forbidden: 0o022, ChmodArg: "go-w", Now: now},
		key:  File{Path: key, What: "key file", MaxBytes: maxPEMBytes, Forbidden: 0o027, ChmodArg: "g-w,o-rwx", Now: now},
	}
	if err := c.load(); err != nil {
		return nil, err
	}
	return c, nil
}

// load reads the pair. If it cannot be used, the current pair stays.
func (c *Certificate) load() error {
	cert, err := c.cert.Read()
	if err != nil {
		return err
	}
	key, err := c.key.Read()
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		c.cert.Again() // read again at the next handshake: the other file may be about to change
		return fmt.Errorf("the certificate %s and the key %s: %w", c.cert.Path, c.key.Path, err)
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return fmt.Errorf("the certificate %s: %w", c.cert.Path, err)
		}
	}
	if now := c.cert.Now(); now.After(pair.Leaf.NotAfter) {
		return fmt.Errorf("the certificate %s expired on %s: renew it", c.cert.Path, pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	c.pair = &pair
	return nil
}

// TLS returns the configuration of a port: TLS 1.2 or newer, and these protocols (ALPN), the preferred one first.
func (c *Certificate) TLS(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     protocols,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current(), nil },
	}
}

func (c *Certificate) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.cert.Changed() && !c.key.Changed() {
		return c.pair
	}
	before := c.pair
	err := c.load()
	switch {
	case c.Log == nil:
	case err != nil && err.Error() != c.failed:
		c.failed = err.Error()
		c.Log.Error("a port keeps its old certificate", zap.String("port", c.Port), zap.Error(err), zap.Time("ends", before.Leaf.NotAfter))
	case err == nil && !c.pair.Leaf.Equal(before.Leaf):
		c.failed = ""
		c.Log.Info("a port has a new certificate", zap.String("port", c.Port), zap.Time("ends", c.pair.Leaf.NotAfter))
	}
	return c.pair
}
