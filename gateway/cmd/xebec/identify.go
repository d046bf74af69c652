package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/xebec-serving/xebec/gateway/admin"
)

// maxCABytes bounds a file of certificates. The largest that systems ship is a quarter of it.
const maxCABytes = 1 << 20

// credentials are for a gateway beyond loopback. They are read for the first request, because completion and serve make
// none.
type credentials struct {
	once  sync.Once
	token string
	user  string
	err   error

	trust      sync.Once // for both ports
	trustError error
}

// identify adds the caller and the token to a request for the admin port.
func (c *cli) identify(req *http.Request) error {
	c.credentials.once.Do(c.readCredentials)
	if c.credentials.err != nil {
		return c.credentials.err
	}
	if err := c.trusted(req); err != nil {
		return err
	}
	if c.credentials.user != "" {
		req.Header.Set("Xebec-User", c.credentials.user)
	}
	if c.credentials.token == "" {
		return nil
	}
	if req.URL.Scheme != "https" && !loopbackHost(req.URL.Hostname()) {
		return usagef("--token-file cannot be used with http://%s, because the token could be read on the way: give --admin https://%s", req.URL.Host, req.URL.Host)
	}
	req.Header.Set("Authorization", "Bearer "+c.credentials.token)
	return nil
}

func (c *cli) readCredentials() {
	if c.tokenFile != "" {
		token, err := admin.ReadToken(c.tokenFile)
		if err != nil {
			c.credentials.err = fmt.Errorf("--token-file: %w", err)
			return
		}
		c.credentials.token = token
	}
}

// trusted prepares the client for a request to either port: a TLS port is verified with the certificates of --ca, and is shown
// --client-cert if it asks for one.
func (c *cli) trusted(req *http.Request) error {
	if c.ca+c.clientCert+c.clientKey == "" || req.URL.Scheme != "https" {
		return nil
	}
	c.credentials.trust.Do(func() { c.credentials.trustError = c.trust() })
	return c.credentials.trustError
}

// caller is the name of the user, which the gateway writes into the history.
func (c *cli) caller() string {
	host, _ := os.Hostname() // a machine may have no name
	user := c.env("USER", c.env("LOGNAME", ""))
	if user == "" {
		user = fmt.Sprintf("uid%d", os.Getuid())
	}
	return callerName(user, host)
}

// trust makes the client verify TLS ports with the certificates of --ca, and show its own.
func (c *cli) trust() error {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.ca != "" {
		text, err := c.readInput(c.ca, maxCABytes)
		if err != nil {
			return fmt.Errorf("--ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("--ca %s: the file has no certificate: expected PEM, -----BEGIN CERTIFICATE-----", c.ca)
		}
	}
	if (c.clientCert == "") != (c.clientKey == "") {
		return usagef("--client-cert and --client-key need each other: the certificate is public, the key proves that it is yours")
	}
	if c.clientCert != "" {
		pair, err := tls.LoadX509KeyPair(c.clientCert, c.clientKey)
		if err != nil {
			return fmt.Errorf("--client-cert %s, --client-key %s: %w: expected a certificate and its key, each in PEM", c.clientCert, c.clientKey, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport, ok := c.http.Transport.(*http.Transport)
	if !ok {
		return fmt.Errorf("--ca and --client-cert cannot be used with a transport of type %T", c.http.Transport)
	}
	transport.TLSClientConfig = config
	return nil
}

// callerName is "user@host" in plain ASCII, within the bounds of the header Xebec-User.
func callerName(user, host string) string {
	const most = 64 // of each of them
	plain := func(s string) string {
		s = strings.Map(func(r rune) rune {
			if r <= ' ' || r >= 0x7f {
				return '_'
			}
			return r
		}, strings.TrimSpace(s))
		return s[:min(len(s), most-1)]
	}
	user, host = plain(user), plain(host)
	if host == "" {
		return user
	}
	return user + "@" + host
}

// loopbackHost reports whether a host is this machine.
func loopbackHost(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// untrustedError is about a certificate.
type untrustedError struct{ error }

// notTrusted says what to do about a certificate that is not trusted.
func notTrusted(err error, ca string) error {
	var verification *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	var op *net.OpError
	switch {
	case errors.As(err, &verification) && ca == "":
		return &untrustedError{fmt.Errorf("the gateway's certificate is not trusted: %w: --ca FILE names the certificates to trust", verification.Err)}
	case errors.As(err, &verification):
		return &untrustedError{fmt.Errorf("the gateway's certificate is not trusted: %w: is --ca %s right?", verification.Err, ca)}
	case errors.As(err, &op) && op.Op == "remote error": // an alert of TLS
		return &untrustedError{fmt.Errorf("the gateway refused the TLS connection: %w: if it wants clients' certificates, --client-cert FILE and --client-key FILE show one that its --client-ca has signed", op.Err)}
	case errors.As(err, &header):
		return &untrustedError{fmt.Errorf("the address does not speak TLS: %w: should it be http:// instead of https://?", header)}
	}
	return err
}
