package watch

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestTranscripts runs the transcripts in testdata: changes to a directory, and the reports. Commands:
//
//	version name=NAME version=VERSION [max=N]   a complete version, renamed into its place; the input is added to its manifest
//	manifest PATH NAME [VERSION]                a valid xebec.yaml at PATH; the input is added to it
//	write PATH, mkdir PATH, remove PATH, move FROM TO, link TARGET PATH, fifo PATH
//	scan [n=N]                                  print the last of N scans
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.Contains(path, "fuzz") {
			return
		}
		d, w := newFixture(t)
		datadriven.RunTest(t, path, func(t *testing.T, c *datadriven.TestData) string {
			d.fataler = t
			arg := func(i int) string { return c.CmdArgs[i].Key }
			var more []string
			if c.Input != "" {
				more = strings.Split(c.Input, "\n")
			}
			switch c.Cmd {
			case "version":
				var name, version string
				c.ScanArgs(t, "name", &name)
				c.ScanArgs(t, "version", &version)
				if c.HasArg("max") {
					var n int
					c.ScanArgs(t, "max", &n)
					more = append(more, fmt.Sprintf("batching: {max: %d}", n))
				}
				d.version(name, version, more...)
			case "manifest":
				version := ""
				if len(c.CmdArgs) > 2 {
					version = arg(2)
				}
				d.write(arg(0), manifestOf(arg(1), version, more...))
			case "write":
				d.write(arg(0), c.Input)
			case "mkdir":
				d.mkdir(arg(0))
			case "remove":
				d.remove(arg(0))
			case "move":
				d.move(arg(0), arg(1))
			case "link":
				d.link(arg(0), arg(1))
			case "fifo":
				d.check(syscall.Mkfifo(d.path(arg(0)), 0o600))
				d.touch(arg(0))
			case "scan":
				n := 1
				if c.HasArg("n") {
					c.ScanArgs(t, "n", &n)
				}
				for range n - 1 {
					w.Scan()
				}
				return d.describe(w.Scan())
			default:
				t.Fatalf("unknown command %s", c.Cmd)
			}
			return ""
		})
	})
}
