package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/machine"
)

// Taken says when and on what a measurement was taken. Reports embed it first, so that their JSON begins with it.
type Taken struct {
	When    time.Time       `json:"when"`
	Machine machine.Machine `json:"machine"`
}

// Now is for a measurement that begins here and now: the machine's load counts before the measurement adds to it.
func Now() Taken { return Taken{When: time.Now(), Machine: machine.Here()} }

// Heading is how a report in Markdown begins: its title with the day, and the machine in a sentence.
func (t Taken) Heading(title string) string {
	return fmt.Sprintf("# %s, %s\n\n%s\n\n", title, t.When.Format("2 January 2006"), t.Machine)
}

// Name is DATE-kind, by which the files of a report are called; a second report of a kind on one day replaces the first.
func (t Taken) Name(kind string) string { return t.When.Format("2006-01-02") + "-" + kind }

// Write keeps a report as name.json and name.md in a folder, which it makes where there is none. It returns their path without
// the ending. A value that is no JSON (a NaN, say) is an error before anything is written.
func Write(dir, name string, value any, markdown string) (base string, err error) {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return "", fmt.Errorf("report %s: %w", name, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	base = filepath.Join(dir, name)
	return base, errors.Join(os.WriteFile(base+".json", append(data, '\n'), 0o644), os.WriteFile(base+".md", []byte(markdown), 0o644))
}
