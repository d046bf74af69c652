package dialect

import (
	"testing"

	"github.com/xebec-serving/xebec/gateway/query"
)

func TestDocument(t *testing.T) {
	serve := Document("application/yaml", []byte("openapi: 3.0.3\n"))
	l := NewLocal(nil, plain{func(*query.Path) []Route { return []Route{{Method: "GET", Path: "/openapi.yaml", Serve: serve}} }})
	get := func(condition string) *Answer {
		t.Helper()
		a, err := l.Do(t.Context(), &Message{Method: "GET", Path: "/openapi.yaml", Header: map[string]string{"If-None-Match": condition}})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := get("")
	tag := string(first.Fields[0].Value)
	if first.Status != 200 || first.ContentType != "application/yaml" || string(first.Body) != "openapi: 3.0.3\n" || len(tag) != 18 {
		t.Errorf("answered %+v with the tag %s", first, tag)
	}
	for condition, want := range map[string]int{
		tag: 304, "W/" + tag: 304, `"other", ` + tag: 304, "*": 304, `"other"`: 200, tag[1 : len(tag)-1]: 200, ",": 200,
	} {
		if a := get(condition); a.Status != want || want == 304 && len(a.Body) > 0 || string(a.Fields[0].Value) != tag {
			t.Errorf("If-None-Match: %s: answered %d with %d bytes, want %d", condition, a.Status, len(a.Body), want)
		}
	}
}
