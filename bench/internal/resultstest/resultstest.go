package resultstest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Contains reports each of the lines, or parts of lines, that a report does not have.
func Contains(t testing.TB, report string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(report, line) {
			t.Errorf("no %q in\n%s", line, report)
		}
	}
}

// Read reads a report that was kept as name.json in a folder.
func Read[T any](t testing.TB, dir, name string) *T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	report := new(T)
	if err := json.Unmarshal(data, report); err != nil {
		t.Fatal(err)
	}
	return report
}
