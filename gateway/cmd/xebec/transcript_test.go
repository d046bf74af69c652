package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestTranscripts runs the commands of testdata/transcripts against a fake gateway. A transcript shows what a user
// sees: stdout, then stderr with "! " before each line, then the exit status unless it is 0. "> " marks requests that
// change something. -rewrite writes the files again.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		g := newFakeGateway(t)
		dir := t.TempDir()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "file":
				file := filepath.Join(dir, d.CmdArgs[0].Key)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(d.Input), 0o644); err != nil {
					t.Fatal(err)
				}
				return ""
			case "xebec":
				command, stdin, _ := strings.Cut(d.Input, "\n")
				out := execute(t, g, stdin, words(strings.ReplaceAll(command, "$DIR", dir)))
				return strings.NewReplacer(dir, "$DIR", strings.ReplaceAll(dir, "/", "%2F"), "$DIR", g.Listener.Addr().String(), "$GATEWAY").Replace(out)
			}
			d.Fatalf(t, "unknown directive %q", d.Cmd)
			return ""
		})
	})
}

// words splits a command line at blanks. Single quotes keep words together.
func words(line string) []string {
	var all []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			all = append(all, part)
		} else {
			all = append(all, strings.Fields(part)...)
		}
	}
	return all
}
