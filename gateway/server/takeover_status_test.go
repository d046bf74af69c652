package server

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/takeover"
)

func readyz(t *testing.T, addr, query string) (int, string) {
	t.Helper()
	res, err := http.Get("http://" + addr + "/readyz" + query)
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

// While a process loads, the old one says so on both ports and in the description of the gateway, with what the new one waits for.
// When the takeover has failed, nothing is said any more.
func TestAnUpgradeUnderWayIsShown(t *testing.T) {
	dir := t.TempDir()
	s, _, addr := alive(t, Config{DataDir: dir})
	if u := s.Upgrade(); u != nil {
		t.Fatalf("an upgrade is shown before there is one: %+v", u)
	}
	c, err := takeover.Dial(t.Context(), filepath.Join(dir, controlFile))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	canary := &takeover.Canary{Share: 0.25, Seconds: 10}
	if err := c.Send(takeover.KindHello, takeover.Hello{Version: takeover.Version, Program: "test", Awaited: true, Canary: canary}); err != nil {
		t.Fatal(err)
	}
	awaited := []string{"m@1 has 0 of 1 replica", strings.Repeat("x", 10*maxAwaitedBytes)}
	for i := range 2 * maxAwaited {
		awaited = append(awaited, fmt.Sprintf("n@%d has 0 of 1 replica", i))
	}
	for _, kind := range []takeover.Kind{takeover.KindWelcome, takeover.KindCall} {
		f, files, err := c.Receive()
		for _, file := range files {
			file.Close()
		}
		if err != nil || f.Kind != kind {
			t.Fatalf("got message %d, %v, expected %d", f.Kind, err, kind)
		}
		if kind == takeover.KindCall {
			if err := c.Answer(f, func(op string, _ []byte) (any, error) {
				if op != opAwaited {
					t.Errorf("asked for %q", op)
				}
				return awaited, nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	until(t, "what is awaited", func() bool { u := s.Upgrade(); return u != nil && len(u.Awaited) > 0 })
	u := s.Upgrade()
	if u.Role != api.UpgradeOld || u.Peer != os.Getpid() || u.Step != api.UpgradeLoading || u.Since.IsZero() || u.Share != 0.25 {
		t.Errorf("shown is %+v", u)
	}
	if n := len(u.Awaited); n != maxAwaited+1 || u.Awaited[0] != awaited[0] || len(u.Awaited[1]) != maxAwaitedBytes || !strings.HasSuffix(u.Awaited[n-1], " more") {
		t.Errorf("awaited are %d: %q", n, u.Awaited)
	}
	if g, err := s.status.Gateway(t.Context()); err != nil || g.Upgrade == nil || !slices.Equal(g.Upgrade.Awaited, u.Awaited) {
		t.Errorf("the description has %+v, %v", g.Upgrade, err)
	}
	for _, at := range []string{addr, s.Admin()} {
		if code, body := readyz(t, at, "?verbose"); code != 200 || !strings.Contains(body, `"upgrade":{"role":"old"`) || !strings.Contains(body, awaited[0]) {
			t.Errorf("%s: /readyz?verbose: %d %s", at, code, body)
		}
		if code, body := readyz(t, at, ""); code != 200 || strings.Contains(body, "upgrade") {
			t.Errorf("%s: /readyz: %d %s", at, code, body)
		}
	}
	if err := c.Send(takeover.KindAbort, takeover.Abort{Reason: "of the test"}); err != nil {
		t.Fatal(err)
	}
	until(t, "the end of the upgrade", func() bool { return s.Upgrade() == nil })
}
