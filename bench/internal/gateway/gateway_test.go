package gateway

import (
	"math"
	"net/http"
	"net/http/httptest"
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
			_, _ = w.Write([]byte(`{"error": "somebody else was faster"}`))
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
	if err := g.Apply(t.Context(), "kind: Model\n"); err == nil || !strings.Contains(err.Error(), "409") || !strings.Contains(err.Error(), "somebody else") {
		t.Errorf("apply: %v, expected the status and the text", err)
	}
}
