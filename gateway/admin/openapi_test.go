package admin

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/xebec-serving/xebec/api"
)

// openapi is the part of the description that the tests use.
type openapi struct {
	Servers    []struct{ URL string }
	Paths      map[string]map[string]yaml.Node
	Components struct {
		Schemas map[string]struct {
			Properties map[string]yaml.Node
		}
	}
}

func readOpenAPI(t *testing.T) (openapi, string) {
	t.Helper()
	text, err := os.ReadFile("../../api/spec/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc openapi
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	return doc, string(text)
}

// operations returns "METHOD /path/{parameter}" for the port's operations.
func (d openapi) operations(t *testing.T, port string) []string {
	t.Helper()
	var all []string
	for path, item := range d.Paths {
		servers := d.Servers
		if own, ok := item["servers"]; ok {
			if err := own.Decode(&servers); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.ContainsFunc(servers, func(s struct{ URL string }) bool { return strings.HasSuffix(s.URL, ":"+port) }) {
			continue
		}
		for key, operation := range item {
			if slices.Contains([]string{"get", "post", "put", "delete", "patch", "head", "options"}, key) {
				var own struct{ Servers []struct{ URL string } }
				if err := operation.Decode(&own); err != nil {
					t.Fatal(err)
				}
				if own.Servers != nil && !slices.ContainsFunc(own.Servers, func(s struct{ URL string }) bool { return strings.HasSuffix(s.URL, ":"+port) }) {
					continue
				}
				all = append(all, strings.ToUpper(key)+" "+path)
			}
		}
	}
	slices.Sort(all)
	return all
}

func TestEveryRouteIsDescribed(t *testing.T) {
	doc, _ := readOpenAPI(t)
	parameter := regexp.MustCompile(`:(\w+)`)
	// The server adds these beside the admin API.
	routes := []string{"GET /", "GET /docs", "GET /healthz", "GET /metrics", "GET /openapi.yaml", "GET /readyz"}
	for _, r := range engine(&fakeControl{}).Routes() {
		if strings.HasSuffix(r.Path, "/") { // the same route
			continue
		}
		routes = append(routes, r.Method+" "+parameter.ReplaceAllString(r.Path, "{$1}"))
	}
	slices.Sort(routes)
	if diff := cmp.Diff(routes, doc.operations(t, "1338")); diff != "" {
		t.Errorf("(-registered +described):\n%s", diff)
	}
}

func TestReferencesResolve(t *testing.T) {
	_, text := readOpenAPI(t)
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`\$ref: "#/([^"]+)"`).FindAllStringSubmatch(text, -1) {
		used[m[1]] = true
		if n := find(root.Content[0], strings.Split(m[1], "/")); n == nil {
			t.Errorf("the reference %s does not exist", m[1])
		}
	}
	for _, section := range []string{"schemas", "parameters", "responses", "requestBodies"} {
		n := find(root.Content[0], []string{"components", section})
		for i := 0; i < len(n.Content); i += 2 {
			if name := "components/" + section + "/" + n.Content[i].Value; !used[name] {
				t.Errorf("nothing refers to %s", name)
			}
		}
	}
}

func find(n *yaml.Node, path []string) *yaml.Node {
	if len(path) == 0 {
		return n
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == path[0] {
			return find(n.Content[i+1], path[1:])
		}
	}
	return nil
}

// The JSON types of the API have exactly the members that are described.
func TestEveryMemberIsDescribed(t *testing.T) {
	doc, _ := readOpenAPI(t)
	for _, v := range []any{
		api.ModelStatus{}, api.ReplicaStatus{}, api.FunctionStatus{}, api.GatewayStatus{}, api.Profile{}, api.Condition{}, api.LogLine{},
		api.Changes{}, api.ModelList{}, api.FunctionList{}, api.ModelDescription{}, api.FunctionDescription{}, api.VersionInfo{},
		api.SchedulerStatus{}, api.FunctionPlanStatus{}, api.CandidateStatus{}, api.ModelPlanStatus{}, api.ReplicaPlanStatus{}, api.ShareStatus{},
		api.DevicePlanStatus{}, api.TenantStatus{}, api.Problem{}, api.StaleObject{}, api.PolicyStatus{}, api.CandidateLearning{}, api.ContextStatus{}, api.FeedbackStatus{},
		api.StoreStatus{}, api.ShadowStatus{}, api.ShadowModelStatus{}, api.ModelCacheStatus{}, api.CacheStatus{},
		api.VersionStatus{}, api.ValidationStatus{}, api.RehearsalStatus{}, api.DriftStatus{}, api.FeatureDrift{}, api.TrafficStatus{}, api.ComparedStatus{}, api.ArmStatus{},
		api.RolloutStatus{}, api.SourceStatus{}, api.HistoryEvent{}, api.History{}, api.TrafficList{}, api.RateStatus{},
		api.LearnedState{}, api.LearnedContext{}, api.LearnedRow{}, api.LearnedChange{}, api.LearnedHistory{}, api.LearnedSample{},
		api.MeasuredStatus{}, api.MeasuredAccuracy{}, api.MeasuredElsewhere{}, api.SizeTime{},
		api.CapacityStatus{}, api.KnownProfile{}, api.ColdStartStatus{}, api.HedgeStatus{}, api.NodeStatus{}, api.ResourceStatus{},
	} {
		typ := reflect.TypeOf(v)
		var members, described []string
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			members = append(members, name)
		}
		schema, ok := doc.Components.Schemas[typ.Name()]
		if !ok {
			t.Errorf("%s is not described", typ.Name())
			continue
		}
		for name := range schema.Properties {
			described = append(described, name)
		}
		slices.Sort(members)
		slices.Sort(described)
		if diff := cmp.Diff(members, described); diff != "" {
			t.Errorf("%s (-has +described):\n%s", typ.Name(), diff)
		}
	}
}

// Every code that a caller can get is in the table of codes, with its status.
func TestEveryCodeIsDescribed(t *testing.T) {
	_, text := readOpenAPI(t)
	for code := range api.Codes {
		if code == api.OK {
			continue
		}
		row := regexp.MustCompile(fmt.Sprintf("\\| %d \\|[^\n]*`%s`", code.HTTPStatus(), code))
		if !row.MatchString(text) {
			t.Errorf("code %s with status %d is not in the table", code, code.HTTPStatus())
		}
	}
}
