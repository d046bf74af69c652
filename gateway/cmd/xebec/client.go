package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/server"
)

const (
	// adminTimeout bounds calls to the admin port, which answers from memory.
	adminTimeout = 30 * time.Second
	// filesTimeout bounds calls for which the gateway reads and copies the files of models, or all states of a store.
	filesTimeout = 15 * time.Minute
	// dialTimeout is far more than a reachable machine needs.
	dialTimeout = 5 * time.Second
	// maxAnswerBytes bounds an answer. 10,000 models take about 20 MB.
	maxAnswerBytes = 256 << 20
)

func newHTTPClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext},
		// The admin port never redirects; a server that does is something else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// baseURL accepts "host:port" and "http://host:port".
func baseURL(flag, address string) (string, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.Path != "" && u.Path != "/" || u.RawQuery != "" {
		return "", usagef("%s %q: expected host:port, such as %s", flag, address, exampleOf(flag))
	}
	return u.Scheme + "://" + u.Host, nil
}

// exampleOf is an address that a flag may have.
func exampleOf(flag string) string {
	switch flag {
	case "--admin":
		return defaultAdmin
	case "--grpc-listen":
		return server.DefaultGRPC
	}
	return defaultServer
}

// hostPort is an address to listen on, without the scheme.
func hostPort(flag, address string) (string, error) {
	base, err := baseURL(flag, address)
	if err != nil {
		return "", err
	}
	_, host, _ := strings.Cut(base, "://")
	if _, _, err := net.SplitHostPort(host); err != nil {
		return "", usagef("%s %q: expected host:port, such as %s", flag, address, exampleOf(flag))
	}
	return host, nil
}

func (c *cli) get(ctx context.Context, path string, into any) error {
	return c.call(ctx, http.MethodGet, path, "", nil, into)
}

// header is an additional header of a request.
type header struct{ name, value string }

// unreadList decodes a list like its field into, and has why the list may lack objects.
type unreadList struct {
	into any
	why  string
}

// getList gets a list of everything. On stderr it says once if the gateway does not know all of it yet.
func (c *cli) getList(ctx context.Context, path string, into any) error {
	l := unreadList{into: into}
	err := c.get(ctx, path, &l)
	if err == nil && l.why != "" {
		c.unread.Do(func() { fmt.Fprintf(c.err, "warning: more may be declared: %s\n", c.cell(l.why)) })
	}
	return err
}

// call sends a request to the admin port and decodes the answer; with a *[]byte, into gets the answer undecoded.
func (c *cli) call(ctx context.Context, method, path, contentType string, body []byte, into any, more ...header) error {
	within := adminTimeout
	for _, files := range []string{"/v1/apply", "/v1/deploy", "/v1/uploads", "/v1/learned"} {
		if strings.HasPrefix(path, files) {
			within = filesTimeout
		}
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	res, err := c.send(ctx, method, path, contentType, "application/json", body, more...)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if l, ok := into.(*unreadList); ok {
		l.why, into = res.Header.Get("Xebec-Unread"), l.into
	}
	answer, err := readAnswer(res)
	if err != nil {
		return err
	}
	if raw, ok := into.(*[]byte); ok {
		*raw = answer
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return c.notUnderstood(err)
	}
	return nil
}

// notUnderstood is the error for an answer of the admin port that this program cannot decode.
func (c *cli) notUnderstood(err error) error {
	return fmt.Errorf("cannot read the answer of the admin port at %s: %w; is the gateway of the same version as this program?", c.admin, err)
}

// send returns an answer with status 200. Any other status is an error. The caller closes the body.
func (c *cli) send(ctx context.Context, method, path, contentType, accept string, body []byte, more ...header) (*http.Response, error) {
	base, err := baseURL("--admin", c.admin)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if err = c.identify(req); err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	for _, h := range more {
		req.Header.Set(h.name, h.value)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable(ctx, notTrusted(err, c.ca), "admin port", "--admin", c.admin)
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer res.Body.Close()
	answer, err := readAnswer(res)
	if err != nil {
		return nil, err
	}
	var failed api.ErrorBody
	if json.Unmarshal(answer, &failed) != nil || failed.Error.Message == "" {
		if bytes.HasPrefix(answer, []byte("Client sent an HTTP request to an HTTPS server")) {
			return nil, fmt.Errorf("the admin port at %s speaks TLS: give --admin https://%s", c.admin, strings.TrimPrefix(base, "http://"))
		}
		return nil, fmt.Errorf("%s is not the admin port of a xebec gateway: it answers %s to %s %s; is --admin right?", c.admin, res.Status, method, path)
	}
	return nil, &remoteError{ErrorInfo: failed.Error, unread: res.Header.Get("Xebec-Unread")}
}

func readAnswer(res *http.Response) ([]byte, error) {
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the gateway's answer was cut off: %w", err)
	case len(answer) > maxAnswerBytes:
		return nil, fmt.Errorf("the gateway's answer is larger than %d bytes", maxAnswerBytes)
	}
	return answer, nil
}

// remoteError is an error that the gateway returned.
type remoteError struct {
	api.ErrorInfo
	// unread is why the gateway does not know yet everything that is declared, if the request failed because of that.
	unread string
}

func (e *remoteError) Error() string { return e.Message }

// unreachable says what to do if there is no answer at all.
func unreachable(ctx context.Context, err error, what, flag, address string) error {
	var netError net.Error
	var untrusted *untrustedError
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Canceled
	case errors.As(err, &untrusted):
		return untrusted
	case (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) && !strings.HasPrefix(address, "https://"):
		return fmt.Errorf("the %s at %s closed the connection without an answer: if it speaks TLS, give %s https://%s", what, address, flag, strings.TrimPrefix(address, "http://"))
	case errors.As(err, &netError) && netError.Timeout():
		return fmt.Errorf("the gateway's %s at %s did not answer in time: %w", what, address, rootCause(err))
	}
	return fmt.Errorf("no gateway answers at %s (its %s): %w\nstart one with \"xebec serve\", or give its address with %s", address, what, rootCause(err), flag)
}

// rootCause drops the layers that repeat the method and the URL.
func rootCause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func indented(text []byte) ([]byte, error) {
	var out bytes.Buffer
	if err := json.Indent(&out, bytes.TrimSpace(text), "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}
