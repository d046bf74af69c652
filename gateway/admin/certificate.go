package admin

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
)

// maxPEMBytes is a chain of certificates with room to spare.
const maxPEMBytes = 1 << 20

// Certificate is a certificate and its key, in two PEM files that are read again when they change: a renewed one needs no restart. While
// the files do not belong together, which they do not for a moment when they are renewed, the last pair that did is used. Any number of
// goroutines may use it.
type Certificate struct {
	// Log is told of a renewal, and of one that failed; nil: nobody. It is set before the first handshake.
	Log *zap.Logger

	mu        sync.Mutex
	cert, key secretFile
	pair      *tls.Certificate
	failed    string // what was told last of a renewal that failed
}

// OpenCertificate reads a certificate with its chain, and its key. Nobody but the owner and the group of the key may read it.
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

// load reads the pair; one that cannot be used changes nothing.
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
		c.cert.seen = nil // look again at the next handshake: the other half may be on its way
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

// TLS is how the admin port speaks: TLS 1.2 or newer, HTTP/1.1.
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
