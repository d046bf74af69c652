package secret

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Authorities are the certificates of those who may issue clients' certificates, in a PEM file that is read again when it
// changes. It is safe for concurrent use.
type Authorities struct {
	// Log and Port are as for a Certificate.
	Log  *zap.Logger
	Port string

	mu     sync.Mutex
	file   File
	pool   *x509.CertPool
	failed string // last failure that was logged
}

// OpenAuthorities reads certificates of authorities.
func OpenAuthorities(path string) (*Authorities, error) { return openAuthorities(path, time.Now) }

func openAuthorities(path string, now func() time.Time) (*Authorities, error) {
	a := &Authorities{file: File{Path: path, What: "file of certificate authorities", MaxBytes: maxPEMBytes, Forbidden: 0o022, ChmodArg: "go-w", Now: now}}
	return a, a.load()
}

func (a *Authorities) load() error {
	text, err := a.file.Read()
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		a.file.Again()
		return fmt.Errorf("the file of certificate authorities %s has no certificate in PEM", a.file.Path)
	}
	a.pool = pool
	return nil
}

func (a *Authorities) current() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.file.Changed() {
		return a.pool
	}
	err := a.load()
	switch {
	case err == nil:
		a.failed = ""
	case a.Log != nil && err.Error() != a.failed:
		a.failed = err.Error()
		a.Log.Error("a port keeps its old certificate authorities", zap.String("port", a.Port), zap.Error(err))
	}
	return a.pool
}

// Require makes a configuration refuse clients that have no certificate of an authority. The file of the moment counts: a client
// whose authority was removed is refused at its next handshake.
func (a *Authorities) Require(c *tls.Config) {
	c.ClientAuth = tls.RequireAnyClientCert // VerifyConnection does the rest, also for resumed sessions
	c.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New("the client has no certificate")
		}
		intermediates := x509.NewCertPool()
		for _, c := range s.PeerCertificates[1:] {
			intermediates.AddCert(c)
		}
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: a.current(), Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		return err
	}
}
