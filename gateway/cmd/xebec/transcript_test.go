package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestTranscripts runs the commands of testdata/*.txt against a fake gateway. A transcript shows what a person sees: stdout,
// then stderr with "! " before each line, then the exit status unless it is 0; and with "> " the requests that change
// something. Run with -rewrite to write the files anew.
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
				out := execute(t, g, dir, stdin, words(strings.ReplaceAll(command, "$DIR", dir)))
				return strings.NewReplacer(dir, "$DIR", strings.ReplaceAll(dir, "/", "%2F"), "$DIR", g.Listener.Addr().String(), "$GATEWAY").Replace(out)
			}
			d.Fatalf(t, "unknown directive %q", d.Cmd)
			return ""
		})
	})
}

func execute(t *testing.T, g *fakeGateway, dir, stdin string, args []string) string {
	var stdout, stderr bytes.Buffer
	env := map[string]string{"XEBEC_ADMIN": g.Listener.Addr().String(), "XEBEC_SERVER": g.URL}
	c := &cli{
		in: strings.NewReader(stdin), out: &stdout, err: &stderr, getenv: func(name string) string { return env[name] },
		now: func() time.Time { return then.Add(65 * time.Minute) }, pollEvery: time.Millisecond,
	}
	code := c.run(t.Context(), args)
	out := stdout.String()
	for line := range strings.Lines(stderr.String()) {
		out += "! " + line
	}
	for _, r := range g.take() {
		out += "> " + strings.ReplaceAll(r, "\n", "\n> ") + "\n"
	}
	if code != 0 {
		out += fmt.Sprintf("exit status %d\n", code)
	}
	return out
}

// words splits a command line at blanks; single quotes hold words together.
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
