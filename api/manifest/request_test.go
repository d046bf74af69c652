package manifest

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/api"
)

const threeKinds = `
kind: Traffic
name: m
revision: 7
serving: "1"
---
kind: Model
name: m
version: "2"
inputs: [{name: x, dtype: bool, shape: []}]
outputs: [{name: y, dtype: bool, shape: []}]
run: {command: [x]}
revision: 0
---
kind: Function
name: g
models: [m]
---
{kind: Function, name: f, models: [m], revision: 9223372036854775807}
`

// A document of a request may have the revision at which its object was read; a document of a file may not.
func TestRevisionsOfARequest(t *testing.T) {
	set, revisions, err := DecodeRequest("manifest", []byte(threeKinds))
	if err != nil {
		t.Fatal(err)
	}
	want := []api.ObjectRevision{
		{Kind: api.KindTraffic, Name: "m", Revision: 7}, {Kind: api.KindModel, Name: "m", Version: "2"}, {Kind: api.KindFunction, Name: "f", Revision: math.MaxInt64},
	}
	if diff := cmp.Diff(want, revisions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	written, err := set.YAML()
	if err != nil || strings.Contains(string(written), "revision") {
		t.Errorf("it is written as\n%s (%v)", written, err)
	}
	if _, err := Decode("f.yaml", []byte(threeKinds)); err == nil || !strings.Contains(err.Error(), "f.yaml:4:1: revision: there is no such field") {
		t.Errorf("a file with revisions: %v", err)
	}
	for text, want := range map[string]string{
		"revision: -1": "manifest:3:11: revision: -1: expected at least 0", "revision: null": "revision: is null", "revision: 1.5": "expected a whole number",
		"revision: 9223372036854775808": "does not fit 64 bits", "revison: 1": `did you mean "revision"?`, "revision: 1\nrevision: 2": "is there twice",
	} {
		set, revisions, err := DecodeRequest("manifest", []byte("kind: Traffic\nname: m\n"+text+"\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %+v, %v, %v, want %q", text, set, revisions, err, want)
		}
	}
}
