package catalog

import (
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
)

func TestDocuments(t *testing.T) {
	p := query.New(query.Config{Now: func() api.Nanos { return 1 }})
	table := &query.Table{Models: map[string]*query.Model{}, Versions: map[api.ModelID]*query.Model{}}
	models := map[string]*query.Model{}
	for _, id := range []api.ModelID{{Name: "m", Version: "1"}, {Name: "m", Version: "2"}, {Name: "m", Version: "3"}, {Name: "both", Version: "7"}} {
		m := query.NewModel(id, querytest.Floats4, &querytest.Lane{Submit: querytest.Sum}, 0, new(obs.Endpoint))
		models[m.Ref()], table.Versions[id], table.Models[id.Name] = m, m, m
	}
	table.Models["m"] = models["m@2"]
	models["m@2"].Ready.Store(1)
	models["m@3"].Closed.Store(true)
	table.Functions = map[string]*query.Function{
		"f":    {Name: "f", Candidates: []query.Candidate{{Model: models["m@2"]}}, Stats: new(obs.Endpoint)},
		"both": {Name: "both", Candidates: []query.Candidate{{Model: models["both@7"]}}, Stats: new(obs.Endpoint)},
	}
	p.Publish(table)
	l := dialect.NewLocal(p, Dialect{Since: time.Unix(7, 0)})
	const loaded = `"state":"AVAILABLE","status":{"error_code":"OK","error_message":""}}`
	for path, want := range map[string]string{
		"/v1/models": `{"object":"list","data":[{"id":"both","object":"model","created":7,"owned_by":"xebec"},{"id":"both@7","object":"model","created":7,"owned_by":"xebec"},` +
			`{"id":"f","object":"model","created":7,"owned_by":"xebec"},{"id":"m","object":"model","created":7,"owned_by":"xebec"}],"models":["both","both@7","f","m"]}`,
		"/v1/models/f": `{"id":"f","object":"model","created":7,"owned_by":"xebec","name":"f","ready":true,"model_version_status":[{"version":"1",` + loaded + `]}`,
		"/v1/models/m": `{"id":"m","object":"model","created":7,"owned_by":"xebec","name":"m","ready":true,"model_version_status":[` +
			`{"version":"1","state":"LOADING","status":{"error_code":"UNAVAILABLE","error_message":"no replica of the version is ready"}},{"version":"2",` + loaded + `]}`,
		"/v1/models/both": `{"id":"both","object":"model","created":7,"owned_by":"xebec","name":"both","ready":false,"model_version_status":[` +
			`{"version":"1","state":"LOADING","status":{"error_code":"UNAVAILABLE","error_message":"no model of the function has a replica that is ready"}}]}`,
		"/v1/models/x": "{\"error\":\"no function or model \\\"x\\\": `xebec get functions` and `xebec get models` list those that exist\",\"code\":\"not_found\"}",
	} {
		a, err := l.Do(t.Context(), &dialect.Message{Method: "GET", Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if string(a.Body) != want || (a.Status == 200) != (path != "/v1/models/x") {
			t.Errorf("%s is answered %d\n%s, want\n%s", path, a.Status, a.Body, want)
		}
	}
}
