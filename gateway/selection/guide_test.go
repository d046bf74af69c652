package selection_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// TestGuideQuotes: the code that the guide quotes is in this folder, and the functions that it declares are accepted.
func TestGuideQuotes(t *testing.T) {
	page, err := os.ReadFile("WRITING.md")
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	files, _ := filepath.Glob("*.go")
	for _, name := range files {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(source)
	}
	quoted, declared := 0, 0
	for _, block := range regexp.MustCompile("(?s)```(go|yaml)\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		if block[1] == "go" {
			if quoted++; !strings.Contains(sources.String(), block[2]) {
				t.Errorf("no file has what the guide quotes:\n%s", block[2])
			}
			continue
		}
		objects, err := manifest.Decode("WRITING.md", []byte(block[2]))
		if err != nil {
			t.Errorf("%s%v", block[2], err)
			continue
		}
		for _, f := range objects.Functions {
			declared++
			if _, err := selection.New(f.Policy.Name, f.Policy.Params, f.Models); err != nil {
				t.Errorf("%s%v", block[2], err)
			}
		}
	}
	if quoted < 5 || declared < 4 {
		t.Errorf("the guide has %d quotations and %d functions", quoted, declared)
	}
}
