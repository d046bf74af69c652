package apptest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certificate writes a self-signed certificate for 127.0.0.1 and its key, and returns their files.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	dir := newDir(t)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "xebec"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for _, f := range []struct {
		path, kind string
		der        []byte
		mode       os.FileMode
	}{{cert, "CERTIFICATE", der, 0o644}, {key, "PRIVATE KEY", secret, 0o600}} {
		if err := os.WriteFile(f.path, pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der}), f.mode); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// tokens writes a token file.
func tokens(t *testing.T, path string, mode os.FileMode, lines ...string) {
	t.Helper()
	fresh := path + ".new"
	if err := os.WriteFile(fresh, []byte(strings.Join(lines, "\n")+"\n"), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(fresh, mode); err != nil { // independent of the umask
		t.Fatal(err)
	}
	if err := os.Rename(fresh, path); err != nil {
		t.Fatal(err)
	}
}

func token(t *testing.T) string {
	t.Helper()
	var b [24]byte
	if _, err := rand.Read(b[:]); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b[:])
}

// guarded is a gateway whose admin port listens on all addresses, with TLS and tokens.
type guarded struct {
	*gateway
	url    string
	cert   string
	client *http.Client
}

func serveGuarded(t *testing.T, tokenFile string) *guarded {
	t.Helper()
	cert, key := certificate(t)
	g := launch(t, newDir(t), "--listen", "127.0.0.1:0", "--admin", "0.0.0.0:0", "--admin-token-file", tokenFile, "--admin-cert", cert, "--admin-key", key)
	g.ready()
	_, port, err := net.SplitHostPort(g.admin)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return &guarded{g, "https://127.0.0.1:" + port, cert, &http.Client{Transport: transport}}
}

// call makes a request, with an Authorization header unless that is empty.
func (g *guarded) call(authorization, method, path, body string) (status int, answer string, header http.Header) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(bounded(g.t), method, g.url+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	req.Header.Set("Content-Type", "application/yaml")
	res, err := g.client.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return res.StatusCode, string(text), res.Header
}

// cli runs the command line with a token file against the TLS port.
func (g *guarded) cli(tokenFile string, args ...string) result {
	g.t.Helper()
	return g.xebec(append([]string{"--admin", g.url, "--ca", g.cert, "--token-file", tokenFile}, args...)...)
}

// audit waits until a line of the log has all parts.
func (g *gateway) audit(parts ...string) {
	g.t.Helper()
	g.await(fmt.Sprintf("a line of the log with %q", parts), func(context.Context) (bool, string) {
		text := g.logText()
		for line := range strings.Lines(text) {
			found := strings.Contains(line, "audit") || strings.Contains(line, "refused on the admin port")
			for _, p := range parts {
				found = found && strings.Contains(line, p)
			}
			if found {
				return true, ""
			}
		}
		return false, tail(text, 10)
	})
}

// The admin port is served on addresses other than loopback only with TLS and a token file that only its owner can read.
// Otherwise the gateway names the missing flags and serves nothing.
func TestAdminPortBeyondLoopback(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	dir := newDir(t)
	good, open, short := filepath.Join(dir, "good"), filepath.Join(dir, "open"), filepath.Join(dir, "short")
	tokens(t, good, 0o600, token(t))
	tokens(t, open, 0o644, token(t))
	tokens(t, short, 0o600, "guess")
	openKey := filepath.Join(dir, "key")
	text, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	tokens(t, openKey, 0o644, string(text))
	for _, c := range []struct {
		what  string
		admin string
		args  []string
		says  []string
	}{
		{"nothing", "0.0.0.0:0", nil, []string{"--admin-token-file", "--admin-cert", "--admin-key", "127.0.0.1"}},
		{"every address of both kinds", "[::]:0", nil, []string{"--admin-token-file", "--admin-cert"}},
		{"an empty host", ":0", nil, []string{"--admin-token-file", "--admin-cert"}},
		{"a token only", "0.0.0.0:0", []string{"--admin-token-file", good}, []string{"--admin-cert", "--admin-key"}},
		{"TLS only", "0.0.0.0:0", []string{"--admin-cert", cert, "--admin-key", key}, []string{"--admin-token-file"}},
		{"no key", "127.0.0.1:0", []string{"--admin-cert", cert}, []string{"--admin-key"}},
		{"tokens that others can read", "0.0.0.0:0", []string{"--admin-token-file", open, "--admin-cert", cert, "--admin-key", key}, []string{open, "chmod 600"}},
		{"the same on loopback", "127.0.0.1:0", []string{"--admin-token-file", open}, []string{open, "chmod 600"}},
		{"a key that others can read", "0.0.0.0:0", []string{"--admin-token-file", good, "--admin-cert", cert, "--admin-key", openKey}, []string{openKey, "chmod"}},
		{"a token that can be guessed", "0.0.0.0:0", []string{"--admin-token-file", short, "--admin-cert", cert, "--admin-key", key}, []string{short, "openssl rand"}},
		{"a file that is not a key", "0.0.0.0:0", []string{"--admin-token-file", good, "--admin-cert", cert, "--admin-key", good}, []string{"--admin-key"}},
	} {
		g := launch(t, newDir(t), append([]string{"--listen", "127.0.0.1:0", "--admin", c.admin}, c.args...)...)
		g.gone(1)
		for _, says := range c.says {
			if !strings.Contains(g.logText(), says) {
				t.Errorf("%s: the gateway's log is\n%s\nexpected %q", c.what, g.logText(), says)
			}
		}
		if strings.Contains(g.logText(), "guess") {
			t.Errorf("%s: the gateway's log has the token:\n%s", c.what, g.logText())
		}
	}
}

// Over TLS a token of the file allows everything, by HTTP and by the command line, under the token's name. All other
// requests are refused and logged. Tokens can be added and removed without a restart. Metrics and health need no token.
func TestTokensOfTheAdminPort(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	file, ops, wrong := filepath.Join(dir, "tokens"), filepath.Join(dir, "ops"), filepath.Join(dir, "wrong")
	first, robot := token(t), token(t)
	tokens(t, file, 0o600, "# who may", "ops:"+first, "robot:"+robot)
	tokens(t, ops, 0o600, first)
	tokens(t, wrong, 0o600, token(t))
	g := serveGuarded(t, file)
	model := number("m", "echo") + function("f", "m", "slo: 60s")

	for what, authorization := range map[string]string{"no token": "", "a wrong token": "Bearer " + token(t), "the name of one": "Bearer ops", "another scheme": "Basic " + first, "half of one": "Bearer " + first[:20]} {
		for _, path := range []string{"/v1/models", "/v1/export", "/v1/history", "/v1/profile/heap"} {
			status, answer, header := g.call(authorization, http.MethodGet, path, "")
			if status != 401 || !strings.HasPrefix(header.Get("WWW-Authenticate"), "Bearer") || strings.Contains(answer, first) {
				t.Errorf("%s: GET %s is answered by %d %s: expected 401", what, path, status, answer)
			}
		}
		if status, answer, _ := g.call(authorization, http.MethodPost, "/v1/apply", model); status != 401 {
			t.Errorf("%s: an apply is answered by %d %s", what, status, answer)
		}
		if status, answer, _ := g.call(authorization, http.MethodGet, "/healthz", ""); status != 200 {
			t.Errorf("%s: /healthz is answered by %d %s", what, status, answer)
		}
	}
	g.audit("refused on the admin port", "127.0.0.1")
	if status, answer, _ := g.call("Bearer "+first, http.MethodGet, "/v1/models", ""); status != 200 || strings.Contains(answer, `"m"`) {
		t.Errorf("with the token GET models is answered by %d %s: expected none yet", status, answer)
	}
	if status, answer, _ := g.call("", http.MethodGet, "/metrics", ""); status != 200 || !strings.Contains(answer, "xebec_") {
		t.Errorf("without a token /metrics is answered by %d %.200s", status, answer)
	}

	g.cli(ops, "apply", "-f", manifest(t, model, version(number("m", "noop"), "2")), "--wait").wants(t, "apply with the token", 0, "function f created", "")
	g.cli(ops, "promote", "m@1", "--wait").wants(t, "promote with the token", 0, "", "")
	g.cli(ops, "delete", "function", "f").wants(t, "delete with the token", 0, "f deleted", "")
	g.cli(wrong, "get", "models").wants(t, "a wrong token", 1, "", "token")
	g.cli(wrong, "delete", "model", "m").wants(t, "delete with a wrong token", 1, "", "token")
	g.xebec("--admin", g.url, "--ca", g.cert, "get", "models").wants(t, "no token", 1, "", "--token-file")
	g.xebec("--admin", g.url, "--token-file", ops, "get", "models").wants(t, "an unknown certificate", 1, "", "--ca")
	for action, parts := range map[string][]string{"apply": {"Model m@1", "Function f"}, "promote": {"m@1"}, "delete": {"Function f"}} {
		g.audit(append(parts, `"user": "ops"`, `"action": "`+action+`"`, `"outcome": "ok"`)...)
	}
	history := g.cli(ops, "history", "-o", "json").out
	if !strings.Contains(history, `"by": "ops`) && !strings.Contains(history, `"by":"ops`) {
		t.Errorf("the history does not have the token's name:\n%s", history)
	}

	// The token is replaced: the new one works at once, and the old one is refused.
	second := token(t)
	tokens(t, file, 0o600, "ops2:"+second)
	if status, answer, _ := g.call("Bearer "+second, http.MethodGet, "/v1/models", ""); status != 200 {
		t.Errorf("the new token is answered by %d %s", status, answer)
	}
	if status, _, _ := g.call("Bearer "+first, http.MethodGet, "/v1/models", ""); status != 401 {
		t.Errorf("the old token is answered by %d", status)
	}
	// If others can read the file all tokens are refused, and the log says why.
	tokens(t, file, 0o644, "ops2:"+second)
	if status, answer, _ := g.call("Bearer "+second, http.MethodGet, "/v1/models", ""); status != 401 || !strings.Contains(answer, "log") {
		t.Errorf("with a file that others can read the token is answered by %d %s", status, answer)
	}
	g.await("the log to say why", func(context.Context) (bool, string) { // the log has at most one refusal a second
		g.call("Bearer "+second, http.MethodGet, "/v1/models", "")
		text := g.logText()
		return strings.Contains(text, "refused on the admin port") && strings.Contains(text, "chmod 600"), tail(text, 3)
	})
	tokens(t, file, 0o600, "ops2:"+second)
	if status, answer, _ := g.call("Bearer "+second, http.MethodGet, "/v1/models", ""); status != 200 {
		t.Errorf("after the file's mode was repaired the token is answered by %d %s", status, answer)
	}
	for what, secret := range map[string]string{"first": first, "second": second, "robot's": robot} {
		if strings.Contains(g.logText(), secret) {
			t.Errorf("the log contains the %s token", what)
		}
	}
}

// Plain HTTP, and garbage, sent to the TLS port are refused and do not affect other requests.
func TestPlainHTTPToTheTLSPort(t *testing.T) {
	t.Parallel()
	file := filepath.Join(newDir(t), "tokens")
	secret := token(t)
	tokens(t, file, 0o600, secret)
	g := serveGuarded(t, file)
	plain := strings.TrimPrefix(g.url, "https://")
	g.xebec("--admin", plain, "get", "models").wants(t, "the command line without TLS", 1, "", "https://"+plain)
	g.xebec("--admin", plain, "--token-file", file, "get", "models").wants(t, "a token without TLS", 1, "", "xebec: ")
	for what, sent := range map[string][]byte{
		"plain HTTP": fmt.Appendf(nil, "GET /v1/models HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", plain, secret),
		"noise":      []byte(strings.Repeat("\x16\x03\x01\xff\xff\x07", 500)), "nothing": nil,
	} {
		conn, err := (&net.Dialer{}).DialContext(bounded(t), "tcp", plain)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(sent); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if half, ok := conn.(*net.TCPConn); ok {
			_ = half.CloseWrite()
		}
		answer, _ := io.ReadAll(io.LimitReader(conn, 1<<16)) // a reset connection has sent nothing
		conn.Close()
		if strings.Contains(string(answer), "200 OK") || strings.Contains(string(answer), `"models"`) {
			t.Errorf("%s is answered by %q", what, answer)
		}
	}
	if status, answer, _ := g.call("Bearer "+secret, http.MethodGet, "/v1/models", ""); status != 200 {
		t.Errorf("a later request is answered by %d %s", status, answer)
	}
	if strings.Contains(g.logText(), secret) {
		t.Error("the log contains the token")
	}
}

// The function port with a certificate speaks HTTP/1.1 and HTTP/2 over TLS and no clear text; with authorities it refuses
// clients without a certificate. Without one it speaks HTTP/2 with clients that begin with it.
func TestFunctionPortOverTLS(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	files := manifest(t, testModel("m", nil), function("f", "m", "slo: 60s"))
	text, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	client := func(protocols *http.Protocols, own ...tls.Certificate) *http.Client {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: own}, Protocols: protocols}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	predict := func(c *http.Client, url string) (string, error) {
		req, err := http.NewRequestWithContext(bounded(t), http.MethodPost, url+"/f/predict", strings.NewReader("hello"))
		if err != nil {
			return "", err
		}
		req.Header.Set("Content-Type", "text/plain")
		res, err := c.Do(req)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		return fmt.Sprintf("%s %d %s", res.Proto, res.StatusCode, body), err
	}
	var http1, http2, clear http.Protocols
	http1.SetHTTP1(true)
	http2.SetHTTP2(true)
	clear.SetUnencryptedHTTP2(true)

	g := launch(t, newDir(t), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--cert", cert, "--key", key, "--config", files)
	g.await("the gateway's addresses", g.readAddresses)
	g.awaitReplicas("m", 1)
	for proto, p := range map[string]*http.Protocols{"HTTP/1.1 200": &http1, "HTTP/2.0 200": &http2} {
		if got, err := predict(client(p), "https://"+g.functions); err != nil || !strings.HasPrefix(got, proto) || !strings.Contains(got, `"output":{"b64":"aGVsbG8="}`) {
			t.Errorf("%s: %v, %s", proto, err, got)
		}
	}
	if got, err := predict(client(&http1), "http://"+g.functions); err == nil && !strings.Contains(got, " 400 ") {
		t.Errorf("clear text is answered by %s", got)
	}

	g = launch(t, newDir(t), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--cert", cert, "--key", key, "--client-ca", cert, "--config", files)
	g.await("the gateway's addresses", g.readAddresses)
	g.awaitReplicas("m", 1)
	if got, err := predict(client(&http2), "https://"+g.functions); err == nil {
		t.Errorf("a client without a certificate is answered by %s", got)
	}
	if got, err := predict(client(&http2, pair), "https://"+g.functions); err != nil || !strings.HasPrefix(got, "HTTP/2.0 200") {
		t.Errorf("a client with a certificate: %v, %s", err, got)
	}
	invoke := func(args ...string) result {
		return g.xebec(append([]string{"invoke", "f", "--server", "https://" + g.functions, "--ca", cert, "--input", `"hello"`}, args...)...)
	}
	invoke().wants(t, "invoke without a certificate", 1, "", "--client-cert FILE and --client-key FILE")
	invoke("--client-cert", cert).wants(t, "invoke without a key", 2, "", "need each other")
	invoke("--client-cert", cert, "--client-key", cert).wants(t, "invoke with a wrong key", 1, "", "each in PEM")
	invoke("--client-cert", cert, "--client-key", key).wants(t, "invoke", 0, `{"b64":"aGVsbG8="}`, "")

	g = serve(t, "--config", files)
	if got, err := predict(client(&clear), "http://"+g.functions); err != nil || !strings.HasPrefix(got, "HTTP/2.0 200") {
		t.Errorf("HTTP/2 in clear text: %v, %s", err, got)
	}
}
