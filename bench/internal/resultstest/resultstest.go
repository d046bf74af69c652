package resultstest

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/bench/internal/results"
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

// Read reads the report that was kept as name.json in dir.
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

// Kept keeps a report in a new folder and fails the test if its JSON, read again, differs from it. It returns the folder.
func Kept[T any, P interface {
	*T
	results.Report
}](t testing.TB, report P, kind string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "results")
	if _, err := results.Keep(dir, kind, report); err != nil {
		t.Fatal(err)
	}
	if got := P(Read[T](t, dir, report.Name(kind))); !reflect.DeepEqual(got, report) {
		t.Errorf("%s.json is read as\n%+v\nwant\n%+v", report.Name(kind), got, report)
	}
	return dir
}

// Shows fails the test unless dir has the figure name.svg with each of the words in its text, and report.md shows it right above a line
// that starts with heading, or anywhere if heading is empty.
func Shows(t testing.TB, dir, report, name, heading string, words ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, report+".md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), strings.TrimSpace("]("+name+".svg)\n\n"+heading)) {
		t.Errorf("%s.md does not show %s.svg above %q", report, name, heading)
	}
	svg, err := os.ReadFile(filepath.Join(dir, name+".svg"))
	if err != nil {
		t.Fatal(err)
	}
	if len(svg) > 100<<10 {
		t.Errorf("%s.svg has %d bytes", name, len(svg))
	}
	letters := Letters(t, string(svg))
	for _, w := range words {
		if !strings.Contains(letters, w) {
			t.Errorf("%s.svg: no %q among %q", name, w, letters)
		}
	}
}

// Letters returns the text in an SVG, which must be well-formed.
func Letters(t testing.TB, svg string) string {
	t.Helper()
	var b strings.Builder
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		if err != nil {
			t.Fatalf("malformed SVG: %v", err)
		}
		if c, ok := token.(xml.CharData); ok {
			b.Write(c)
		}
	}
}
