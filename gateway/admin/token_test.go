package admin

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/xebec-serving/xebec/gateway/internal/browser"
)

const (
	tokenA = "AAAAAAAAAAAAAAAA"
	tokenB = "b-._~+/b12345678=="
)

func writeTokens(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	writeTokens(t, path, "# ours\n"+tokenA+"\n\n ann@laptop : "+tokenB+" \r\n")
	if _, err := OpenTokens(path); err == nil {
		t.Fatal("a name with a space was accepted")
	}
	writeTokens(t, path, "# ours\n"+tokenA+"\n\n ann@laptop: "+tokenB+" \r\n")
	tokens, err := OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		header, name string
		refusal      error
	}{
		{"Bearer " + tokenA, "", nil}, {"bearer  " + tokenA + " ", "", nil}, {"Bearer " + tokenB, "ann@laptop", nil},
		{"", "", errNoToken}, {"Bearer", "", errNoToken}, {"Bearer ", "", errNoToken}, {tokenA, "", errNoToken}, {"Basic " + tokenA, "", errNoToken},
		{"Bearer " + strings.Repeat("x", MaxTokenBytes+1), "", errNoToken},
		{"Bearer " + tokenA + "A", "", errWrongToken}, {"Bearer " + tokenA[1:], "", errWrongToken}, {"Bearer ann@laptop:" + tokenB, "", errWrongToken},
		{"Bearer # ours", "", errWrongToken}, {"Bearer " + strings.ToLower(tokenA), "", errWrongToken},
	} {
		name, refusal, detail := tokens.Check(c.header)
		if name != c.name || !errors.Is(refusal, c.refusal) || detail != nil {
			t.Errorf("%.40q: got %q, %v, %v; want %q, %v", c.header, name, refusal, detail, c.name, c.refusal)
		}
	}
	if token, err := ReadToken(path); token != tokenA || err != nil {
		t.Errorf("ReadToken returned %q, %v", token, err)
	}
}

func TestRefusedTokenFiles(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":           {"", "has no token in it: expected one a line"},
		"a comment":       {"# later\n", "has no token in it"},
		"short":           {"AAAAAAAAAAAAAAA\n", "line 1: the token has 15 bytes: expected 16 to 4096"},
		"long":            {strings.Repeat("A", 4097), "line 1: the token has 4097 bytes"},
		"a space inside":  {"AAAAAAAA AAAAAAAA", "line 1: the token has characters that a header does not permit"},
		"a zero byte":     {"AAAAAAAA\x00AAAAAAAA", "line 1: the token has characters"},
		"= inside":        {"AAAAAAAA=AAAAAAAA", "line 1: the token has characters"},
		"no name":         {":" + tokenA, "line 1: the name before the colon"},
		"a strange name":  {"a\x1bb:" + tokenA, "line 1: the name before the colon"},
		"a long name":     {strings.Repeat("n", 65) + ":" + tokenA, "line 1: the name before the colon: expected 1 to 64"},
		"only a name":     {"ann:", "line 1: the token has 0 bytes"},
		"twice":           {"ann:" + tokenA + "\nbob:" + tokenA, "lines 1 and 2 have the same token"},
		"large":           {strings.Repeat("#\n", maxTokenFileBytes/2+1), "has more than 65536 bytes"},
		"a second is bad": {tokenA + "\nshort", "line 2: the token has 5 bytes"},
	} {
		path := filepath.Join(t.TempDir(), "tokens")
		writeTokens(t, path, c.text)
		for what, open := range map[string]func(string) error{
			"gateway": func(path string) error { _, err := OpenTokens(path); return err },
			"client":  func(path string) error { _, err := ReadToken(path); return err },
		} {
			err := open(path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s, %s: got %v, want %q", name, what, err, c.want)
			} else if strings.Contains(err.Error(), "AAAAAAAA") {
				t.Errorf("%s: the error contains the token: %v", name, err)
			}
		}
	}
}

func TestInvalidTokenFiles(t *testing.T) {
	dir := t.TempDir()
	good, open, pipe := filepath.Join(dir, "good"), filepath.Join(dir, "open"), filepath.Join(dir, "pipe")
	writeTokens(t, good, tokenA)
	writeTokens(t, open, tokenA)
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(good, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenTokens(filepath.Join(dir, "link")); err != nil {
		t.Errorf("a link to a valid file is refused, but secrets are often mounted as links: %v", err)
	}
	for _, mode := range []os.FileMode{0o640, 0o620, 0o604, 0o602, 0o610, 0o644, 0o777} {
		if err := os.Chmod(open, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenTokens(open); err == nil || !strings.Contains(err.Error(), "gives others access: chmod 600 "+open) {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none"): "cannot open the token file: open " + dir + "/none: no such file", dir: "is not a regular file", pipe: "is not a regular file",
	} {
		if _, err := OpenTokens(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(good, 12345, -1); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenTokens(good); err == nil || !strings.Contains(err.Error(), "belongs to user 12345, who could change it") {
			t.Errorf("a file of another user: %v", err)
		}
	}
}

// Tokens are issued and revoked without a restart. An invalid file refuses all requests until it is repaired.
func TestTokensAreRenewed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	writeTokens(t, path, tokenA)
	// Long after the last change, so that an unchanged file is not read again.
	tokens, err := openTokens(path, func() time.Time { return time.Now().Add(time.Hour) })
	if err != nil {
		t.Fatal(err)
	}
	check := func(when, token string, refusal error, detail string) {
		t.Helper()
		_, got, why := tokens.Check("Bearer " + token)
		if !errors.Is(got, refusal) || (detail == "") != (why == nil) || detail != "" && !strings.Contains(why.Error(), detail) {
			t.Errorf("%s: got %v, %v; want %v, %q", when, got, why, refusal, detail)
		}
	}
	check("at first", tokenA, nil, "")
	writeTokens(t, path, "ann:"+tokenB)
	check("after it was revoked", tokenA, errWrongToken, "")
	check("after it was issued", tokenB, nil, "")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	check("while others can read it", tokenB, errNoTokens, "gives others access")
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	check("after it was repaired", tokenB, nil, "")
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	check("while it is missing", tokenB, errNoTokens, "no such file")
	check("while it is missing, without a token", "", errNoTokens, "no such file")
	// A different file of the same size and time is noticed.
	info, err := os.Stat(path + ".old")
	if err != nil {
		t.Fatal(err)
	}
	writeTokens(t, path, "bob:"+tokenB)
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if name, refusal, _ := tokens.Check("Bearer " + tokenB); refusal != nil || name != "bob" {
		t.Errorf("a file with a different name: got %q, %v", name, refusal)
	}
}

// Two changes within one tick of the file system's clock are both noticed.
func TestRecentFilesAreReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	writeTokens(t, path, tokenA)
	at := time.Now()
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
	tokens, err := openTokens(path, func() time.Time { return at })
	if err != nil {
		t.Fatal(err)
	}
	writeTokens(t, path, strings.ToLower(tokenA))
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
	if _, refusal, _ := tokens.Check("Bearer " + strings.ToLower(tokenA)); refusal != nil {
		t.Error(refusal)
	}
}

// A request without a valid token reveals nothing and is counted; there is at most one log line a second.
func TestRefusedRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	writeTokens(t, path, "ann:"+tokenA)
	now := time.Now()
	tokens, err := openTokens(path, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	core, lines := observer.New(zap.DebugLevel)
	f := &fakeControl{}
	o := Options{Tokens: tokens, Log: zap.New(core), AnyHost: true}
	e := engineWith(f, o)
	for _, path := range []string{"/v1/models", "/v1/models/unknown", "/v1/models/m/logs", "/v1/export", "/v1/profile/heap"} {
		got := ask(e, "GET", path, "", "Host: gateway.example:1338", "Authorization: Bearer wrong-wrong-wrong")
		if got.Code != 401 || got.Header().Get("WWW-Authenticate") != `Bearer realm="xebec"` || !strings.Contains(got.Body.String(), `"code":"unauthorized"`) {
			t.Errorf("%s: got %d %s", path, got.Code, got.Body)
		}
	}
	if got := ask(e, "POST", "/v1/apply", document, asYAML); got.Code != 401 || f.applied != nil {
		t.Errorf("apply: got %d, and %v was applied", got.Code, f.applied)
	}
	now = now.Add(refusalLogInterval)
	ask(e, "GET", "/v1/models", "")
	all := lines.FilterMessage("refused on the admin port").All()
	if len(all) != 2 || all[0].ContextMap()["requests"] != uint64(1) || all[1].ContextMap()["requests"] != uint64(6) || all[1].ContextMap()["requests_ever"] != uint64(7) {
		t.Errorf("got %+v", all)
	}
	got := ask(e, "POST", "/v1/apply", document, asYAML, "Host: gateway.example:1338", "Authorization: Bearer "+tokenA, "Xebec-User: mallory")
	if got.Code != 200 || f.caller.Name != "ann" {
		t.Errorf("with a token: %d %s, from %q", got.Code, got.Body, f.caller)
	}
	if got := ask(e, "GET", "/v1/models", "", "Authorization: Bearer "+tokenA, "Origin: https://evil.example"); got.Code != 403 {
		t.Errorf("a page of another origin: %d", got.Code)
	}
}

// Handlers beside the API need no token. A foreign Host is refused where the port is on loopback.
func TestPublicHandlers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	writeTokens(t, path, tokenA)
	tokens, err := OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	hosts, err := browser.ParseHosts([]string{"*.proxy.example"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o    Options
		want map[string]int // status by Host
	}{
		{Options{Tokens: tokens}, map[string]int{"127.0.0.1:1338": 200, "localhost": 200, "": 200, "gateway.example": 403, "10.0.0.5": 403}},
		{Options{AllowedHosts: hosts}, map[string]int{"[::1]:1": 200, "a.proxy.example": 200, "gateway.example": 403}},
		{Options{Tokens: tokens, AnyHost: true}, map[string]int{"gateway.example": 200, "10.0.0.5:1338": 200}},
	} {
		e := engineWith(&fakeControl{}, c.o)
		e.GET("/metrics", c.o.Public(func(_ context.Context, c *app.RequestContext) { c.SetStatusCode(200) }))
		for host, want := range c.want {
			got := ask(e, "GET", "/metrics", "", "Host: "+host)
			if got.Code != want || want == 403 && !strings.Contains(got.Body.String(), "--allowed-hosts") {
				t.Errorf("Host %q: got %d %s, want %d", host, got.Code, got.Body, want)
			}
		}
	}
}

// AnyHost has no effect without tokens.
func TestAnyHostNeedsTokens(t *testing.T) {
	if got := ask(engineWith(&fakeControl{}, Options{AnyHost: true}), "GET", "/v1/models", "", "Host: gateway.example:1338"); got.Code != 403 {
		t.Errorf("got %d", got.Code)
	}
}

func FuzzTokenFile(f *testing.F) {
	for _, text := range []string{"", tokenA, "ann:" + tokenB, "# x\n\n" + tokenA + "\r\n", ":\n", tokenA + "\n" + tokenA} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var names, secrets []string
		if eachToken("f", data, func(name, secret string) { names, secrets = append(names, name), append(secrets, secret) }) != nil {
			return
		}
		for i, secret := range secrets {
			if got, ok := bearer("Bearer " + secret); !ok || got != secret || len(secret) < MinTokenBytes {
				t.Errorf("the token %q cannot be sent", secret)
			}
			if strings.ContainsAny(names[i], " \t\r\n:\x00") {
				t.Errorf("invalid name %q", names[i])
			}
		}
		if len(secrets) == 0 {
			t.Error("no tokens and no error")
		}
	})
}
