package gateway

import (
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseResident(t *testing.T) {
	got, err := parseResident("Name:\txebec\nVmHWM:\t  999 kB\nVmRSS:\t  146485 kB\nThreads:\t9\n")
	if err != nil || math.Abs(got-150.00064) > 1e-9 {
		t.Errorf("%v MB, %v: expected 150.00064", got, err)
	}
	for _, bad := range []string{"", "VmRSS: much kB\n"} {
		if _, err := parseResident(bad); err == nil {
			t.Errorf("%q: expected an error", bad)
		}
	}
}

func TestAdminClient(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/traffic/changing":
			_, _ = w.Write([]byte(`{"traffic": [{"serving": "2"}]}`))
		case r.URL.Path == "/v1/models":
			_, _ = w.Write([]byte(`{"models": [{}, {}, {}]}`))
		case r.URL.Path == "/v1/models/one":
			_, _ = w.Write([]byte(`{"models": [{"state": "idle", "capacity": {"wanted": 3}}]}`))
		case r.URL.Path == "/v1/models/two":
			_, _ = w.Write([]byte(`{"models": [{}, {}]}`))
		case r.URL.Path == "/v1/describe/gateway":
			_, _ = w.Write([]byte(`{"replicas": 7, "node": {"awake": 5}}`))
		case r.URL.Path == "/v1/apply" && r.Header.Get("Content-Type") == "application/yaml":
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"error": "a concurrent apply was faster"}`))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer s.Close()
	g := &Gateway{Admin: strings.TrimPrefix(s.URL, "http://"), client: s.Client()}
	if v, err := g.Serving(t.Context(), "changing"); err != nil || v != "2" {
		t.Errorf("serving %q, %v", v, err)
	}
	if n, err := g.Models(t.Context()); err != nil || n != 3 {
		t.Errorf("%d models, %v", n, err)
	}
	if m, err := g.Model(t.Context(), "one"); err != nil || m.Capacity == nil || m.Capacity.Wanted != 3 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := g.Model(t.Context(), "two"); err == nil || !strings.Contains(err.Error(), "2 versions") {
		t.Errorf("a model with two versions: %v", err)
	}
	if st, err := g.Status(t.Context()); err != nil || st.Replicas != 7 || st.Node == nil || st.Node.Awake != 5 {
		t.Errorf("%+v, %v", st, err)
	}
	if err := g.Apply(t.Context(), "kind: Model\n"); err == nil || !strings.Contains(err.Error(), "409") || !strings.Contains(err.Error(), "a concurrent apply") {
		t.Errorf("apply: %v, expected the status and the text", err)
	}
}

// A gateway is ready although models have failed; ModelsReady says which and why.
func TestModelsReady(t *testing.T) {
	answer := `{"models": [{"spec": {"name": "good"}, "replicas": [{"state": "ready"}]}]}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) }))
	defer s.Close()
	g := &Gateway{Admin: strings.TrimPrefix(s.URL, "http://"), client: s.Client()}
	if err := g.ModelsReady(t.Context()); err != nil {
		t.Error(err)
	}
	answer = `{"models": [{"spec": {"name": "bad"}, "state": "failed", "replicas": [{"state": "failed"}],
		"conditions": [{"type": "Serving", "message": "no"}, {"type": "Ready", "message": "exited with code 1: ModuleNotFoundError"}]}]}`
	want := "model bad has no ready replica: failed: exited with code 1: ModuleNotFoundError"
	if err := g.ModelsReady(t.Context()); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestPrepare(t *testing.T) {
	folder := t.TempDir()
	g := &Gateway{Folder: folder}
	o := Options{Programs: Programs{Python: "/py"}, Store: true, Files: map[string]string{"models/a.yaml": "kind: Model\n"}, Configs: []string{"models", "/elsewhere"}, Args: []string{"--epoch", "0"}}
	got, err := o.prepare(g)
	want := []string{
		"serve", "--listen", g.Addr, "--admin", g.Admin, "--log-level", "warn", "--python", "/py",
		"--config", filepath.Join(folder, "models"), "--config", "/elsewhere", "--data-dir", filepath.Join(folder, "data"), "--epoch", "0",
	}
	if err != nil || g.Addr == g.Admin || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if text, err := os.ReadFile(filepath.Join(folder, "models/a.yaml")); err != nil || string(text) != "kind: Model\n" {
		t.Errorf("the file has %q, %v", text, err)
	}
}

func TestAFailedStartRemovesATemporaryFolder(t *testing.T) {
	for _, temporary := range []bool{true, false} {
		folder := filepath.Join(t.TempDir(), "gateway")
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := Start(t.Context(), Options{Programs: Programs{Xebec: "/nowhere/xebec"}, Folder: folder, Temporary: temporary})
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
		if _, err := os.Stat(folder); (err == nil) == temporary {
			t.Errorf("temporary %v: the folder: %v", temporary, err)
		}
	}
}

func TestSamples(t *testing.T) {
	const text = `# TYPE late histogram
late_bucket{model="a",le="0.5"} 3
late_bucket{model="a",le="+Inf"} 4
late_bucket{model="b",le="+Inf"} 9
late_sum{model="a"} 1.5
plain 7
`
	got, err := Samples(text, "late", `model="a"`)
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	if got[0].Name != "late_bucket" || got[0].Label("le") != "0.5" || got[0].Value != 3 || got[2].Name != "late_sum" || got[2].Label("le") != "" {
		t.Errorf("got %+v", got)
	}
	if _, err := Samples(strings.Replace(text, "1.5", "many", 1), "late"); err == nil || !strings.Contains(err.Error(), "late_sum") {
		t.Errorf("a value that is not a number: %v", err)
	}
}
