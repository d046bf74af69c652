package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/machine"
)

// Taken says when and on which machine a measurement was taken. Reports embed it as their first field, so that their JSON begins with it.
type Taken struct {
	When    time.Time       `json:"when"`
	Machine machine.Machine `json:"machine"`
}

// Now describes a measurement that starts now. It reads the machine's load before the measurement adds to it.
func Now() Taken { return Taken{When: time.Now(), Machine: machine.Here()} }

// Heading is the beginning of a Markdown report: the title with the day, and a sentence about the machine.
func (t Taken) Heading(title string) string {
	return fmt.Sprintf("# %s, %s\n\n%s\n\n", title, t.When.Format("2 January 2006"), t.Machine)
}

// Name is DATE-kind, the name of a report's files. A second report of a kind on the same day replaces the first.
func (t Taken) Name(kind string) string { return t.When.Format("2006-01-02") + "-" + kind }

// Report is what a program measured. Taken provides Name; the JSON form of a report is its fields.
type Report interface {
	Name(kind string) string
	Empty() bool // nothing was measured
	Markdown() string
}

// Illustrated is a Report with figures.
type Illustrated interface {
	Report
	Figures() ([]Figure, error)
}

// Figure is a picture of a report.
type Figure struct {
	Name string // of the file, without .svg
	Alt  string // text in place of the picture
	// Before is the beginning of the Markdown line above which the picture is shown. Empty: at the end of the report.
	Before string
	SVG    []byte
}

// Keep writes a report as DATE-kind.json and .md into dir, with its figures as .svg, and returns the files' paths.
func Keep(dir, kind string, r Report) ([]string, error) {
	var figures []Figure
	if illustrated, ok := r.(Illustrated); ok {
		var err error
		if figures, err = illustrated.Figures(); err != nil {
			return nil, err
		}
	}
	return Write(dir, r.Name(kind), r, r.Markdown(), figures...)
}

// Write writes value as name.json, the Markdown with links to the figures as name.md, and the figures. It creates dir if needed and
// returns the files' paths. If value has no JSON form (a NaN, for example), Write fails before it writes anything.
func Write(dir, name string, value any, markdown string, figures ...Figure) ([]string, error) {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("report %s: %w", name, err)
	}
	for _, f := range figures {
		link := fmt.Sprintf("\n![%s](%s.svg)\n", f.Alt, f.Name)
		if f.Before == "" {
			markdown += link
		} else {
			markdown = strings.Replace(markdown, "\n"+f.Before, link+"\n"+f.Before, 1)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var paths []string
	var failed error
	write := func(file string, data []byte) {
		paths = append(paths, filepath.Join(dir, file))
		failed = errors.Join(failed, os.WriteFile(paths[len(paths)-1], data, 0o644))
	}
	write(name+".json", append(data, '\n'))
	write(name+".md", []byte(markdown))
	for _, f := range figures {
		write(f.Name+".svg", f.SVG)
	}
	return paths, failed
}
