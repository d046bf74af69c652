package http

import (
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
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
			if operation, ok := item[method]; ok {
				var own struct{ Servers []struct{ URL string } }
				if err := operation.Decode(&own); err != nil {
					t.Fatal(err)
				}
				if own.Servers != nil && !slices.ContainsFunc(own.Servers, func(s struct{ URL string }) bool { return strings.HasSuffix(s.URL, ":1337") }) {
					continue
				}
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

// TestTrailingSlash: one slash at the end of any described path of the function port changes nothing about the answer, over HTTP/1.1 and HTTP/2.
func TestTrailingSlash(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	clients := map[string]*http.Client{"HTTP/1.1": {}, "HTTP/2": {Transport: &http.Transport{Protocols: new(http.Protocols)}}}
	clients["HTTP/2"].Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	defer clients["HTTP/2"].CloseIdleConnections()
	parameter := regexp.MustCompile(`:\w+`)
	for _, r := range f.s.hertz.Routes() {
		if r.Path == "/" { // is one
			continue
		}
		path := parameter.ReplaceAllStringFunc(r.Path, func(name string) string {
			if name == ":version" {
				return "1"
			}
			return map[bool]string{true: "f", false: "m"}[name == ":function"]
		})
		for protocol, client := range clients {
			ask := func(path string) string {
				t.Helper()
				req, err := http.NewRequest(r.Method, "http://"+f.addr+path, strings.NewReader(`{}`))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("X-Request-Id", "r")
				req.Header.Set("Content-Type", "application/json")
				resp, err := client.Do(req)
				if err != nil {
					t.Fatalf("%s %s: %v", r.Method, path, err)
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				return resp.Status + " " + string(body)
			}
			want := ask(path)
			if got := ask(path + "/"); got != want || strings.Contains(want, "no route") {
				t.Errorf("%s %s %s/ is answered %s, and without the slash %s", protocol, r.Method, path, got, want)
			}
			if got := ask(path + "/?verbose"); got[:3] != want[:3] {
				t.Errorf("%s %s %s/?verbose is answered %s, and without the slash %s", protocol, r.Method, path, got, want)
			}
			if got := ask(path + "//"); got[:3] == "200" {
				t.Errorf("%s %s %s// is answered %s", protocol, r.Method, path, got)
			}
		}
	}
}
