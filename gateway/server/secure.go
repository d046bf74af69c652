package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/gateway/admin"
	"github.com/xebec-serving/xebec/gateway/internal/accept"
	"github.com/xebec-serving/xebec/gateway/internal/secret"
)

// security says who may use the admin port. A caller that reaches it can run programs, so the rules are few and have no exceptions:
// on a loopback address every program of this machine may use it; on any other address only callers with a token, over TLS.
type security struct {
	loopback    bool
	tokens      *admin.Tokens       // nil: no token is required, on loopback only
	certificate *secret.Certificate // nil: plain HTTP, on loopback only
}

// adminSecurity checks the address and reads the files. Its errors name the flags to add.
func (c Config) adminSecurity() (*security, error) {
	host, _, err := net.SplitHostPort(c.Admin)
	if err != nil {
		return nil, fmt.Errorf("--admin %q: expected host:port: %w", c.Admin, err)
	}
	s := &security{loopback: isLoopback(host)}
	if (c.AdminCert == "") != (c.AdminKey == "") {
		return nil, errors.New("--admin-cert and --admin-key belong together: give both, or neither")
	}
	if missing := c.missing(); len(missing) > 0 && !s.loopback {
		return nil, fmt.Errorf("--admin %q is not a loopback address: a caller that reaches the admin port can run programs here, "+
			"so on other addresses it requires TLS and a token: add %s, or use 127.0.0.1, ::1 or localhost", c.Admin, strings.Join(missing, " and "))
	}
	if c.AdminTokenFile != "" {
		if s.tokens, err = admin.OpenTokens(c.AdminTokenFile); err != nil {
			return nil, fmt.Errorf("--admin-token-file: %w", err)
		}
	}
	if c.AdminCert != "" {
		if s.certificate, err = secret.OpenCertificate(c.AdminCert, c.AdminKey); err != nil {
			return nil, fmt.Errorf("--admin-cert, --admin-key: %w", err)
		}
	}
	return s, nil
}

// functionTLS is the configuration of the function port; nil: clear text.
func (c Config) functionTLS(log *zap.Logger) (*tls.Config, error) {
	const port = "functions"
	if (c.Cert == "") != (c.Key == "") {
		return nil, errors.New("--cert and --key belong together: give both, or neither")
	}
	if c.Cert == "" {
		if c.ClientCA != "" {
			return nil, errors.New("--client-ca needs --cert and --key: clients show certificates over TLS only")
		}
		return nil, nil
	}
	certificate, err := secret.OpenCertificate(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("--cert, --key: %w", err)
	}
	certificate.Log, certificate.Port = log, port
	config := certificate.TLS("h2", "http/1.1")
	if c.ClientCA != "" {
		authorities, err := secret.OpenAuthorities(c.ClientCA)
		if err != nil {
			return nil, fmt.Errorf("--client-ca: %w", err)
		}
		authorities.Log, authorities.Port = log, port
		authorities.Require(config)
	}
	return config, nil
}

// missing returns the flags that are still needed for an address that is not loopback.
func (c Config) missing() []string {
	var flags []string
	if c.AdminTokenFile == "" {
		flags = append(flags, "--admin-token-file FILE (one token a line, mode 0600; openssl rand -base64 32 makes a token)")
	}
	if c.AdminCert == "" {
		flags = append(flags, "--admin-cert FILE --admin-key FILE (PEM)")
	}
	return flags
}

// isLoopback reports whether only this machine can reach an address with this host part. An empty host means all addresses.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// adminListener is the admin port's listener together with its access rules, so that it cannot be served without them.
type adminListener struct {
	*accept.Listener
	security *security
}

// adminConnections is enough for scrapes, probes and people, and leaves most descriptors to the function port.
const adminConnections = 512 //xebec:limit open connections to the admin port; more are closed

// listen opens the admin port, unless it is open already. notAccepted is told about connections that were not accepted.
func (s *security) listen(address string, ln net.Listener, notAccepted func(uint64, error)) (_ *adminListener, err error) {
	if ln == nil {
		if ln, err = net.Listen("tcp", address); err != nil {
			return nil, fmt.Errorf("listen on the admin port: %w; is another gateway running? --admin chooses another address", err)
		}
	}
	// /etc/hosts may map "localhost" to another address.
	if at, ok := ln.Addr().(*net.TCPAddr); s.loopback && (!ok || !at.IP.IsLoopback()) {
		ln.Close()
		return nil, fmt.Errorf("--admin %q resolves to %s on this machine, which is not a loopback address: use 127.0.0.1", address, ln.Addr())
	}
	bounded, err := accept.New(ln, accept.Config{Connections: adminConnections, Report: notAccepted})
	if err != nil {
		ln.Close()
		return nil, err
	}
	return &adminListener{bounded, s}, nil
}

// options returns the options of the admin API.
func (s *security) options(log *zap.Logger) admin.Options {
	if s.certificate != nil {
		s.certificate.Log, s.certificate.Port = log, "admin"
	}
	return admin.Options{Log: log, Tokens: s.tokens, AnyHost: !s.loopback}
}
