package fetch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fixture is a store whose archives are manifests, and what the web server behind it has.
func fixture(t *testing.T) (s *Store, files map[string]string, dir string) {
	t.Helper()
	files, dir = map[string]string{}, t.TempDir()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text, there := files[r.URL.Path]; there {
			io.WriteString(w, text)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	s, err := New(Config{Index: server.URL + "/index.json?key=s3cret", Dir: dir, LimitBytes: 1000, Unpack: func(_ context.Context, dir string, stream io.Reader) error {
		text, err := io.ReadAll(stream)
		return errors.Join(err, os.WriteFile(filepath.Join(dir, "xebec.yaml"), text, 0o600))
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s, files, dir
}

func line(version, text string, size int) string {
	return fmt.Sprintf(`{"name": "m", "version": %q, "url": "/%s", "size": %d, "sha256": "%x"}`, version, version, size, sha256.Sum256([]byte(text)))
}

func index(lines ...string) string { return `{"models": [` + strings.Join(lines, ",") + `]}` }

// Only what has the listed size and hash gets into the directory, and only a readable index takes anything out of it.
func TestStore(t *testing.T) {
	s, files, dir := fixture(t)
	versions := func(want string, problems ...string) {
		t.Helper()
		r := s.Scan()
		found, _ := filepath.Glob(filepath.Join(dir, "m", "[0-9]*"))
		for i := range found {
			found[i] = filepath.Base(found[i])
		}
		var all []string
		for _, p := range r.Problems {
			if strings.HasPrefix(p.Message, s.Name()) {
				all = append(all, p.Message)
			}
			if strings.Contains(p.Message, "s3cret") {
				t.Errorf("the URL's query is shown: %s", p)
			}
		}
		if got := strings.Join(found, " "); got != want || len(all) != len(problems) {
			t.Fatalf("versions %q, problems %q: expected %q, %q", got, all, want, problems)
		}
		for i, p := range problems {
			if !strings.Contains(all[i], p) {
				t.Errorf("the problem is %q: expected %q", all[i], p)
			}
		}
	}
	versions("", "answers 404 Not Found")
	files["/1"], files["/2"], files["/3"], files["/4"] = "one", "two", "three", "four"
	files["/index.json"] = index(line("1", "one", 3), line("2", "two!", 3), line("3", "three", 4), line("4", "four", 5), line("5", "five", 4))
	versions("1", "m@2: its archive has the sha256", "m@3: its archive has more than the 4 bytes", "m@4: its archive has 4 bytes: expected 5", "m@5: its archive: answers 404")
	files["/index.json"] = index(line("1", "other", 5), line("2", "two", 3))
	versions("1 2", "m@1: the index has the hash")
	if text, err := os.ReadFile(filepath.Join(dir, "m", "1", "xebec.yaml")); string(text) != "one" {
		t.Errorf("version 1 is %q, %v", text, err)
	}
	files["/index.json"] = index(line("2", "two", 3), `{"name": "m", "version": "8"}`)
	versions("1 2", "models[1]: m@8: url")
	files["/index.json"] = "<html>"
	versions("1 2", "models[1]", "not what was expected")
	files["/index.json"] = index(line("2", "two", 3))
	versions("2")
	files["/index.json"] = index()
	versions("")
	if left, _ := filepath.Glob(filepath.Join(dir, ".new-*")); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, index := range []string{"", "models/index.json", "file:///models/index.json", "http://", "http://%zz"} {
		if _, err := New(Config{Index: index}); err == nil {
			t.Errorf("%q is taken", index)
		}
	}
}
