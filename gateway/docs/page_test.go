package docs

import (
	"bytes"
	"cmp"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

func openAPI(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("../../api/spec/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The lines of the description are read as a parser of YAML reads it.
func TestOperations(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]yaml.Node
	}
	if err := yaml.Unmarshal(openAPI(t), &doc); err != nil {
		t.Fatal(err)
	}
	var want []Operation
	for path, item := range doc.Paths {
		var servers []struct{ URL string }
		if node, ok := item["servers"]; ok {
			if err := node.Decode(&servers); err != nil {
				t.Fatal(err)
			}
		}
		at := func(port string) bool {
			return slices.ContainsFunc(servers, func(s struct{ URL string }) bool { return strings.HasSuffix(s.URL, port) })
		}
		for _, method := range []string{"get", "post", "put", "delete", "patch"} {
			node, ok := item[method]
			if !ok {
				continue
			}
			var op struct{ Summary string }
			if err := node.Decode(&op); err != nil {
				t.Fatal(err)
			}
			want = append(want, Operation{strings.ToUpper(method), path, op.Summary, len(servers) == 0 || at(":1337"), at(":1338")})
		}
	}
	got := Operations(openAPI(t))
	order := func(a, b Operation) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method)) }
	slices.SortFunc(got, order)
	slices.SortFunc(want, order)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-YAML +lines):\n%s", diff)
	}
}

// The page is complete, small, asks no other host, and permits nothing but what stands in it.
func TestPage(t *testing.T) {
	page, policy := Page(openAPI(t))
	if len(page) > 100_000 {
		t.Errorf("the page has %d bytes", len(page))
	}
	for _, mark := range []string{"/*STYLE*/", "/*SCRIPT*/", "/*ROUTES*/"} {
		if bytes.Contains(page, []byte(mark)) {
			t.Errorf("%s is still there", mark)
		}
	}
	if hosts := regexp.MustCompile(`https?://[^/$]`).FindAll(page, -1); hosts != nil {
		t.Errorf("the page names other hosts: %q", hosts)
	}
	for tag, directive := range map[string]string{"style": "style-src", "script": "script-src"} {
		parts := regexp.MustCompile(`(?s)<`+tag+`>(.*?)</`+tag+`>`).FindAllSubmatch(page, -1)
		if len(parts) != 1 {
			t.Fatalf("%d %s elements, want 1", len(parts), tag)
		}
		if want := directive + " " + hash(string(parts[0][1])); !strings.Contains(policy, want) {
			t.Errorf("the policy %s permits another %s, want %s", policy, tag, want)
		}
	}
	for _, unsafe := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("} {
		if bytes.Contains(page, []byte(unsafe)) {
			t.Errorf("the script uses %s: text of others would become markup", unsafe)
		}
	}
}
