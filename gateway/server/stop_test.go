package server

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// askPort sends a request on a connection and returns the answer's status, whether it closes the connection, and its body.
func askPort(t *testing.T, c net.Conn, r *bufio.Reader, path string) (status int, closes bool, body string) {
	t.Helper()
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, answer.Close, string(text)
}

func TestQuiesceAnnouncesTheEndAndServes(t *testing.T) {
	s, _, _ := started(t, Config{})
	ctx := context.Background()
	if _, err := s.Apply(ctx, decoded(t, model+fn), false); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", s.Listen())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	if status, closes, _ := askPort(t, c, r, "/healthz"); status != 200 || closes {
		t.Fatalf("before: %d, closes %v", status, closes)
	}
	s.Quiesce()
	if status, closes, _ := askPort(t, c, r, "/healthz"); status != 200 || !closes {
		t.Errorf("a request of a quiescing gateway: %d, closes %v", status, closes)
	}
	fresh, err := net.Dial("tcp", s.Listen())
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	if status, closes, body := askPort(t, fresh, bufio.NewReader(fresh), "/readyz"); status != 503 || !closes || !strings.Contains(body, "stopping") {
		t.Errorf("readyz of a quiescing gateway: %d %s, closes %v", status, body, closes)
	}
	if _, err := s.Apply(ctx, decoded(t, strings.Replace(model, `"1"`, `"2"`, 1)), false); code(err) != api.ShuttingDown {
		t.Errorf("apply: %v", err)
	}
	if _, err := s.Delete(ctx, api.KindFunction, api.ModelID{Name: "f"}); code(err) != api.ShuttingDown {
		t.Errorf("delete: %v", err)
	}
	if models, err := s.Models(ctx, ""); err != nil || len(models) != 1 {
		t.Errorf("models: %v, %v", models, err)
	}
}

// The lame duck ends when its context does, however long it would be, and a gateway without one does not wait.
func TestStopWaitsForTheLameDuck(t *testing.T) {
	s := New(Config{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", LameDuck: time.Hour, DataDir: t.TempDir(), Runtime: newIdle()})
	if err := s.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	lameDuck, endLameDuck := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- s.Stop(lameDuck, context.Background()) }()
	until(t, "the gateway to say that it stops", func() bool { ready, why := s.Ready(); return !ready && strings.Contains(why, "stopping") })
	c, err := net.Dial("tcp", s.Listen())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if status, _, _ := askPort(t, c, bufio.NewReader(c), "/healthz"); status != 200 {
		t.Errorf("a lame duck answers %d", status)
	}
	endLameDuck()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	select {
	case err := <-s.Failed():
		t.Errorf("a port has failed: %v", err)
	default:
	}
}

func TestReloadAppliesManifestsAgain(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "all.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, _, _ := started(t, Config{Manifests: []string{dir}}) // empty: a warning
	ctx := context.Background()
	write(model + fn)
	if changes, err := s.Reload(ctx); err != nil || actions(changes) != "Model m created, Function f created" {
		t.Fatalf("%s, %v", actions(changes), err)
	}
	write(model + strings.Replace(fn, "slo:", "nonsense: 1\nslo:", 1))
	if _, err := s.Reload(ctx); err == nil || !strings.Contains(err.Error(), file+":") || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("an invalid manifest: %v", err)
	}
	write(fn)
	if changes, err := s.Reload(ctx); err != nil || actions(changes) != "Function f unchanged" {
		t.Errorf("%s, %v", actions(changes), err)
	}
	if models, err := s.Models(ctx, ""); err != nil || len(models) != 1 {
		t.Errorf("models: %v, %v", models, err)
	}
}
