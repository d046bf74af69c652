package apptest

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// httpStore is a store of models as any web server is one.
type httpStore struct {
	*httptest.Server
	mu    sync.Mutex
	files map[string][]byte
	lines []string // of the index
}

func newHTTPStore(t *testing.T) *httpStore {
	s := &httpStore{files: map[string][]byte{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if data, there := s.files[r.URL.Path]; there {
			w.Write(data)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(s.Close)
	s.publish()
	return s
}

// publish makes the index one with these lines more.
func (s *httpStore) publish(lines ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, lines...)
	s.files["/models/index.json"] = fmt.Appendf(nil, `{"models": [%s]}`, strings.Join(s.lines, ",\n"))
}

// add stores the archive of a version of the table prices, and returns its line in an index.
func (s *httpStore) add(t *testing.T, version, price string) string {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range [][2]string{
		{"./", ""},
		{"./prices.csv", "sku,price\na1," + price + "\n"},
		{"./xebec.yaml", "name: prices\ninputs: [{name: sku, dtype: string, shape: []}]\noutputs: [{name: price, dtype: float64, shape: []}]\nrun: {command: [xebec, table, prices.csv]}\n"},
	} {
		h := &tar.Header{Name: f[0], Size: int64(len(f[1])), Mode: 0o644, Typeflag: tar.TypeReg}
		if f[1] == "" {
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := "prices-" + version + ".tar"
	s.files["/models/"+name] = archive.Bytes()
	return fmt.Sprintf(`{"name": "prices", "version": %q, "url": %q, "size": %d, "sha256": "%x"}`, version, name, archive.Len(), sha256.Sum256(archive.Bytes()))
}

// awaitProblem waits until a source of models shows a problem.
func (g *gateway) awaitProblem(text string) {
	g.t.Helper()
	g.await("the problem "+text, func(context.Context) (bool, string) {
		r := g.xebec("describe", "gateway")
		return strings.Contains(r.out, text), r.out + r.err
	})
}

// Versions that an HTTP store lists are served, new ones as they appear. One whose archive has another hash, or whose hash changes, is a
// problem and harms no other; and what was fetched is served without the store, too.
func TestHTTPStore(t *testing.T) {
	t.Parallel()
	store := newHTTPStore(t)
	store.publish(store.add(t, "1", "1.5"))
	args := []string{"--data-dir", newDir(t), "--models-url", store.URL + "/models/index.json?signature=s3cret", "--models-url-interval", often}
	g := serve(t, args...)
	is := func(want string) {
		t.Helper()
		if text := g.must("invoke", "prices", "--slo", "60s", "--input", `"a1"`); strings.TrimSpace(text) != want {
			t.Errorf("a1 is %s: expected %s", text, want)
		}
	}
	g.awaitServing("prices@1")
	is("1.5")

	store.publish(store.add(t, "2", "1.75"))
	g.awaitServing("prices@2")
	is("1.75")
	g.must("rollback", "prices", "--wait")
	is("1.5")
	g.must("promote", "prices@2", "--wait")

	third := store.add(t, "3", "2")
	store.add(t, "3", "9")
	store.publish(third)
	g.awaitProblem("prices@3: its archive has the sha256")
	store.lines[0] = store.add(t, "1", "7")
	store.publish()
	g.awaitProblem("prices@1: the index has the hash")
	is("1.75")
	if text := g.must("describe", "gateway"); strings.Contains(text, "s3cret") {
		t.Errorf("the signature in the URL is shown:\n%s", text)
	}
	apply := strings.Replace(number("prices", "echo"), `version: "1"`, `version: "7"`, 1)
	if r := g.xebecIn("", apply, "apply", "-f", "-"); r.status == 0 || !strings.Contains(r.err, "comes from the store") {
		t.Errorf("applying a version of the store's model: %d %s", r.status, r.err)
	}

	g.stop()
	store.Close()
	g = serve(t, args...)
	g.awaitServing("prices@2")
	is("1.75")
	g.awaitProblem("what it listed before is kept")
}
