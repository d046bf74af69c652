package xebec

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocsClients: the page of clients has every feature that the tests of clients name, and the versions that these are pinned to.
func TestDocsClients(t *testing.T) {
	const page = guideFolder + "/reference/clients.md"
	const again = `: run make test-clients CLIENTARGS="--page ` + page + ` protocols perf_analyzer"`
	text := read(t, page)
	tests, err := filepath.Glob("api/clients/protocols/test_*.py")
	if err != nil || len(tests) == 0 {
		t.Fatalf("no tests of clients: %v", err)
	}
	named := regexp.MustCompile(`(?m)^@\w+\("(.+)"\)$`)
	for _, name := range tests {
		found := named.FindAllStringSubmatch(read(t, filepath.ToSlash(name)), -1)
		if len(found) == 0 {
			t.Errorf("%s names no feature", name)
		}
		for _, m := range found {
			if !strings.Contains(text, "| "+m[1]+" |") {
				t.Errorf("%s has no line for %q of %s%s", page, m[1], name, again)
			}
		}
	}
	pins := read(t, ".ci/requirements-protocols.txt") + read(t, ".ci/requirements-protocols-alone.txt") + strings.ReplaceAll(read(t, ".ci/perf-analyzer.sh"), "package=", "")
	clients := regexp.MustCompile(`(?m)^## ([a-z_-]+)\S* .*\n\nVersion (\S+)\.$`).FindAllStringSubmatch(text, -1)
	if len(clients) == 0 {
		t.Fatalf("%s names no client", page)
	}
	for _, m := range clients {
		if m[1] == "fetch" { // a program of the machine, as curl
			continue
		}
		if !strings.Contains(pins, "\n"+m[1]+"=="+m[2]+"\n") {
			t.Errorf("%s: %s %s is not the version that is installed for the tests%s", page, m[1], m[2], again)
		}
	}
}
