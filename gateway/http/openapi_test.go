package http

import (
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/xebec-serving/xebec/gateway/query"
)

// TestEveryRouteIsDescribed: api/spec/openapi.yaml describes the routes of the function port, all of them and no others.
func TestEveryRouteIsDescribed(t *testing.T) {
	text, err := os.ReadFile("../../api/spec/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]yaml.Node
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	verb := regexp.MustCompile(`\}:\w+$`) // behind a name, which one route takes with all of its verbs
	var described []string
	for path, item := range doc.Paths {
		// Paths without servers of their own are those of the function port.
		if servers, own := item["servers"]; own {
			var list []struct{ URL string }
			if err := servers.Decode(&list); err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(list, func(s struct{ URL string }) bool { return strings.HasSuffix(s.URL, ":1337") }) {
				continue
			}
		}
		for _, method := range []string{"get", "post", "put", "delete", "patch", "head", "options"} {
			if _, ok := item[method]; ok {
				described = append(described, strings.ToUpper(method)+" "+verb.ReplaceAllString(path, "}"))
			}
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	server, err := New(Config{Path: query.New(query.Config{}), Listener: ln, Limits: DefaultLimits(), Dialects: dialects(), Ready: ready})
	if err != nil {
		t.Fatal(err)
	}
	parameter := regexp.MustCompile(`:(\w+)`)
	var registered []string
	for _, r := range server.hertz.Routes() {
		if r.Method == "HEAD" { // wherever GET is
			continue
		}
		registered = append(registered, r.Method+" "+parameter.ReplaceAllString(r.Path, "{$1}"))
	}
	slices.Sort(described)
	described = slices.Compact(described)
	slices.Sort(registered)
	if diff := cmp.Diff(registered, described); diff != "" {
		t.Errorf("(-registered +described):\n%s", diff)
	}
}
