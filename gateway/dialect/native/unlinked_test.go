package native

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query"
)

// A function without models answers each query with its default and says why, and counts it.
func TestUnlinked(t *testing.T) {
	stats := new(obs.Endpoint)
	p := query.New(query.Config{Now: func() api.Nanos { return 1 }, MaxBatch: 3})
	p.Publish(&query.Table{Unlinked: map[string]*query.Unlinked{"f": {Name: "f", Default: []byte(`"none"`), Stats: stats}}})
	local := dialect.NewLocal(p, Dialect{})
	const one = `"output":"none","default":true,"default_explanation":"No connected models found for query","confidence":0,"models":[]}`
	for _, c := range []struct {
		path, kind, body string
		status           int
		want             string
	}{
		{"/f/predict", "application/json", `{"input": [1, 2]}`, 200, one},
		{"/f/predict", "application/octet-stream", "\x00\x01", 200, one},
		{"/f/predict", "application/json", `{"input_batch": [[1], [2], [3]]}`, 200, `},{"query_id":`},
		{"/f/predict", "application/json", `{"input_batch": [[1], [2], [3], [4]]}`, 400, "more than 3 inputs"},
		{"/f/predict", "application/json", `{"input_batch": []}`, 400, "expected either"},
		{"/f/predict", "application/json", `{}`, 400, "expected either"},
		{"/f/predict", "application/json", `{"input": 1`, 400, `"error":"Json error"`},
		{"/f/feedback", "application/json", `{"input": 1, "label": 2}`, 503, `function \"f\" has no models yet`},
	} {
		a, err := local.Do(t.Context(), &dialect.Message{Method: "POST", Path: c.path, Header: map[string]string{"Content-Type": c.kind}, Body: []byte(c.body)})
		if err != nil {
			t.Fatal(err)
		}
		if a.Status != c.status || !strings.Contains(string(a.Body), c.want) || !json.Valid(a.Body) {
			t.Errorf("%s %s: got %d %s, want %d with %s", c.path, c.body, a.Status, a.Body, c.status, c.want)
		}
	}
	if got := stats.Read().Queries; got != 5 {
		t.Errorf("%d queries were counted: expected 5", got)
	}
}
