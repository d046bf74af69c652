package admin

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
	// Log receives renewals and failed ones; nil means no logging. Set it before the first handshake.
	Log *zap.Logger

	mu        sync.Mutex
	cert, key secretFile
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
		cert: secretFile{path: cert, what: "certificate file", maxBytes: maxPEMBytes, forbidden: 0o022, chmodArg: "go-w", now: now},
		key:  secretFile{path: key, what: "key file", maxBytes: maxPEMBytes, forbidden: 0o027, chmodArg: "g-w,o-rwx", now: now},
	}
	if err := c.load(); err != nil {
		return nil, err
	}
	return c, nil
}

// load reads the pair. If it cannot be used, the current pair stays.
func (c *Certificate) load() error {
	cert, err := c.cert.read()
	if err != nil {
		return err
	}
	key, err := c.key.read()
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		c.cert.seen = nil // read again at the next handshake: the other file may be about to change
		return fmt.Errorf("the certificate %s and the key %s: %w", c.cert.path, c.key.path, err)
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return fmt.Errorf("the certificate %s: %w", c.cert.path, err)
		}
	}
	if now := c.cert.now(); now.After(pair.Leaf.NotAfter) {
		return fmt.Errorf("the certificate %s expired on %s: renew it", c.cert.path, pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	c.pair = &pair
	return nil
}

// TLS returns the configuration of the admin port: TLS 1.2 or newer, HTTP/1.1.
func (c *Certificate) TLS() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current(), nil },
	}
}

func (c *Certificate) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.cert.changed() && !c.key.changed() {
		return c.pair
	}
	before := c.pair
	err := c.load()
	switch {
	case c.Log == nil:
	case err != nil && err.Error() != c.failed:
		c.failed = err.Error()
		c.Log.Error("the admin port keeps its old certificate", zap.Error(err), zap.Time("ends", before.Leaf.NotAfter))
	case err == nil && !c.pair.Leaf.Equal(before.Leaf):
		c.failed = ""
		c.Log.Info("the admin port has a new certificate", zap.Time("ends", c.pair.Leaf.NotAfter))
	}
	return c.pair
}
