package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker in releases: -ldflags "-X main.version=v1.2.3".
var version string

// buildInfo describes the build of this program.
type buildInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildVersion() buildInfo {
	b := buildInfo{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.time":
				b.Time = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
		if b.Version == "" && info.Main.Version != "(devel)" {
			b.Version = info.Main.Version
		}
	}
	if b.Version == "" {
		b.Version = "dev"
	}
	return b
}

func (c *cli) versionCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Long:  `Print the version of this program. "xebec describe gateway" prints that of a running gateway.`,
		Args:  exactly(),
		RunE: func(*cobra.Command, []string) error {
			b := buildVersion()
			if format != formatTable {
				return c.printJSON(format, b)
			}
			line := "xebec " + b.Version
			if b.Commit != "" {
				line += fmt.Sprintf(" (commit %.12s", b.Commit)
				if b.Modified {
					line += ", modified"
				}
				line += ")"
			}
			_, err := fmt.Fprintf(c.out, "%s %s %s\n", line, b.Go, b.Platform)
			return err
		},
	}
	outputFlag(cmd, &format)
	return cmd
}
