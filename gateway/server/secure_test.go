package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

const adminToken = "0123456789abcdef"

// secrets are the files that a port on another address than loopback needs, and a pool with the certificate.
func secrets(t *testing.T) (cfg Config, pool *x509.CertPool) {
	t.Helper()
	dir := t.TempDir()
	cfg = Config{AdminTokenFile: filepath.Join(dir, "tokens"), AdminCert: filepath.Join(dir, "cert.pem"), AdminKey: filepath.Join(dir, "key.pem")}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"gateway.example"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for path, data := range map[string][]byte{
		cfg.AdminTokenFile: []byte("ann:" + adminToken + "\n"),
		cfg.AdminCert:      pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		cfg.AdminKey:       pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(cert)
	return cfg, pool
}

// adminOf starts a gateway and returns the address of its admin port.
func adminOf(t *testing.T, cfg Config) string {
	t.Helper()
	cfg.Runtime = newIdle()
	s, _ := listening(t, cfg)
	return s.Admin()
}

func TestWhereTheAdminPortMayBe(t *testing.T) {
	all, _ := secrets(t)
	onlyTokens, onlyTLS, halfTLS, open := Config{AdminTokenFile: all.AdminTokenFile}, Config{AdminCert: all.AdminCert, AdminKey: all.AdminKey}, all, all
	halfTLS.AdminKey = ""
	open.AdminTokenFile = filepath.Join(t.TempDir(), "open")
	if err := os.WriteFile(open.AdminTokenFile, []byte(adminToken), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open.AdminTokenFile, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		address string
		cfg     Config
		want    string // in the error; "" where there is none
	}{
		{"127.0.0.1:0", Config{}, ""}, {"localhost:0", Config{}, ""}, {"[::1]:0", Config{}, ""}, {"127.9.9.9:0", Config{}, ""}, {"127.0.0.1:0", all, ""}, {"127.0.0.1:0", onlyTokens, ""},
		{"0.0.0.0:0", all, ""}, {":0", all, ""}, {"[::]:0", all, ""},
		{"0.0.0.0:0", Config{}, "add --admin-token-file FILE (one token a line, mode 0600; openssl rand -base64 32 makes a token) and --admin-cert FILE --admin-key FILE (PEM), or use 127.0.0.1"},
		{":0", Config{}, `--admin ":0" is not a loopback address`}, {"[::]:0", Config{}, "is not a loopback address"}, {"192.168.0.1:0", Config{}, "is not a loopback address"},
		{"localhost.example:0", Config{}, "is not a loopback address"}, {"127.0.0.1.example:0", Config{}, "is not a loopback address"},
		{"0.0.0.0:0", onlyTokens, "requires TLS and a token: add --admin-cert FILE --admin-key FILE (PEM), or use"},
		{"0.0.0.0:0", onlyTLS, "requires TLS and a token: add --admin-token-file FILE (one token a line, mode 0600; openssl rand -base64 32 makes a token), or use"},
		{"0.0.0.0:0", halfTLS, "--admin-cert and --admin-key belong together"}, {"127.0.0.1:0", halfTLS, "--admin-cert and --admin-key belong together"},
		{"0.0.0.0:0", open, "--admin-token-file: the token file " + open.AdminTokenFile + " has mode 0644"}, {"127.0.0.1:0", open, "has mode 0644"},
		{"127.0.0.1", Config{}, "expected host:port"},
	} {
		c.cfg.Admin, c.cfg.Listen = c.address, "127.0.0.1:0"
		s := New(c.cfg)
		err := s.listen()
		if err := s.close(); err != nil {
			t.Error(err)
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.address, err, c.want)
		}
	}
}

func TestBeyondLoopback(t *testing.T) {
	cfg, pool := secrets(t)
	core, lines := observer.New(zap.InfoLevel)
	cfg.Admin, cfg.Logger = "0.0.0.0:0", zap.New(core)
	_, port, err := net.SplitHostPort(adminOf(t, cfg))
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", port)
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "gateway.example"}}}
	ask := func(method, path, authorization string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "https://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "gateway.example:1338" // a name that is not loopback
		if authorization != "" {
			req.Header.Set("Authorization", authorization)
		}
		req.Header.Set("Xebec-User", "another user")
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	for _, c := range []struct {
		path   string
		closed int
	}{{"/v1/models", 401}, {"/v1/export", 401}, {"/v1/profile/heap", 401}, {"/metrics", 200}, {"/readyz", 200}, {"/healthz", 200}, {"/openapi.yaml", 200}, {"/docs", 200}, {"/", 200}} {
		for authorization, want := range map[string]int{"": c.closed, "Bearer 0123456789abcdeF": c.closed, "Bearer " + adminToken: 200} {
			if got, body := ask("GET", c.path, authorization); got != want {
				t.Errorf("%s with %q: got %d %.200s, want %d", c.path, authorization, got, body, want)
			}
		}
	}
	if status, _ := ask("DELETE", "/v1/functions/f", "Bearer "+adminToken); status != 404 {
		t.Errorf("delete: got %d", status)
	}
	audited := lines.FilterMessage("refused or failed").All()
	if len(audited) != 1 || audited[0].ContextMap()["user"] != "ann" || audited[0].ContextMap()["address"] != "127.0.0.1" {
		t.Errorf("the audit has %+v", audited)
	}
	// Requests without TLS get no answer, and old protocols are refused.
	plain := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	if res, err := plain.Get("http://" + address + "/healthz"); err == nil {
		res.Body.Close()
		t.Errorf("plain HTTP is answered %s", res.Status)
	}
	old, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, ServerName: "gateway.example", MaxVersion: tls.VersionTLS11})
	if err == nil {
		old.Close()
		t.Error("TLS 1.1 is accepted")
	}
}

// A connection that sends nothing, or half a request, is closed: neither needs a token.
func TestSilentCallersAreCutOff(t *testing.T) {
	cfg, _ := secrets(t)
	for _, c := range []Config{{Admin: "127.0.0.1:0"}, {Admin: "0.0.0.0:0", AdminTokenFile: cfg.AdminTokenFile, AdminCert: cfg.AdminCert, AdminKey: cfg.AdminKey}} {
		c.Listen, c.Logger = "127.0.0.1:0", zap.NewNop()
		c.FirstByteTimeout, c.HeaderTimeout = 10*time.Millisecond, 10*time.Millisecond
		s := New(c)
		if err := s.listen(); err != nil {
			t.Fatal(err)
		}
		h := s.newAdmin(s.admin)
		done := make(chan error, 1)
		go func() { done <- h.Run() }()
		_, port, err := net.SplitHostPort(s.Admin())
		if err != nil {
			t.Fatal(err)
		}
		for _, said := range []string{"", "GET /healthz HTTP/1.1\r\n"} {
			conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
			if err != nil {
				t.Fatal(err)
			}
			if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, said); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, conn); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: after %q the connection stays open", c.Admin, said)
			}
			conn.Close()
		}
		if err := h.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := errors.Join(<-done, s.close()); err != nil {
			t.Error(err)
		}
	}
}

// On loopback a token is required only if a token file is configured. Scrapers and probes need none, but a foreign Host is
// refused on every route, unless it is an allowed one, for the routes that need no token.
func TestOnLoopback(t *testing.T) {
	files, _ := secrets(t)
	for _, c := range []struct {
		cfg  Config
		want int
	}{{Config{}, 200}, {Config{AdminTokenFile: files.AdminTokenFile}, 401}} {
		c.cfg.Admin, c.cfg.Logger, c.cfg.AllowedHosts = "127.0.0.1:0", zap.NewNop(), []string{"*.proxy.example"}
		address := adminOf(t, c.cfg)
		client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		for _, path := range []string{"/v1/models", "/metrics", "/readyz", "/healthz", "/openapi.yaml", "/docs"} {
			for host, want := range map[string]int{"": 200, "localhost:1338": 200, "gateway.example": 403, "a.proxy.example": 200} {
				if path == "/v1/models" && want == 200 {
					want = c.want
				}
				if path == "/v1/models" && host == "a.proxy.example" {
					want = 403 // the API is for programs on this machine, whatever a proxy calls it
				}
				req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+address+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Host = host
				res, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil || res.StatusCode != want || want == 403 && path != "/v1/models" && !strings.Contains(string(body), "--allowed-hosts") {
					t.Errorf("%s with token file %q, Host %q: got %d %.200s, want %d", path, c.cfg.AdminTokenFile, host, res.StatusCode, body, want)
				}
			}
		}
	}
}

func TestAllowedHostsAreChecked(t *testing.T) {
	s := New(Config{Listen: NoPort, Admin: NoPort, AllowedHosts: []string{"https://a.example"}})
	if err := s.listen(); err == nil || !strings.Contains(err.Error(), `--allowed-hosts: host "https://a.example"`) {
		t.Errorf("got %v", err)
	}
}
