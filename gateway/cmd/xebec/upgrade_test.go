package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/gateway/server"
)

func TestCanaryFlags(t *testing.T) {
	for _, c := range []struct {
		share string
		trial time.Duration
		timed bool
		want  *server.Canary
		says  string
	}{
		{share: "", trial: time.Minute},
		{share: "", trial: time.Minute, timed: true, says: "--canary SHARE"},
		{share: "5%", trial: time.Minute, want: &server.Canary{Share: 0.05, Seconds: 60}},
		{share: "0.05", trial: 100 * time.Millisecond, want: &server.Canary{Share: 0.05, Seconds: 0.1}},
		{share: "50%", trial: 24 * time.Hour, want: &server.Canary{Share: 0.5, Seconds: 86400}},
		{share: "51%", trial: time.Minute, says: "0.1% to 50%"},
		{share: "0.01%", trial: time.Minute, says: "0.1% to 50%"},
		{share: "-5%", trial: time.Minute, says: "0.1% to 50%"},
		{share: "NaN", trial: time.Minute, says: "0.1% to 50%"},
		{share: "5", trial: time.Minute, says: "0.1% to 50%"},
		{share: "five", trial: time.Minute, says: "5%"},
		{share: "5%", trial: time.Millisecond, says: "100ms"},
		{share: "5%", trial: 25 * time.Hour, says: "24h"},
	} {
		got, err := canaryFlags(c.share, c.trial, c.timed)
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q for %s: %v, expected %q", c.share, c.trial, err, c.says)
			}
			continue
		}
		if err != nil || (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%q for %s: %+v, %v", c.share, c.trial, got, err)
		}
	}
}

// A process that was a canary does not make its successor one.
func TestSuccessorArgs(t *testing.T) {
	canary := &server.Canary{Share: 0.05, Seconds: 90}
	for _, c := range []struct {
		own    string
		canary *server.Canary
		want   string
	}{
		{"serve --listen :1", nil, "serve --listen :1 --takeover"},
		{"serve --takeover --listen :1", nil, "serve --listen :1 --takeover"},
		{"serve --listen :1", canary, "serve --listen :1 --takeover --canary=0.05 --canary-time=1m30s"},
		{"serve --takeover --canary=0.5 --canary-time=1s --listen :1", nil, "serve --listen :1 --takeover"},
		{"serve --canary 50% --takeover --canary-time 1s --cache 1GiB", canary, "serve --cache 1GiB --takeover --canary=0.05 --canary-time=1m30s"},
	} {
		if got := successorArgs(strings.Fields(c.own), c.canary); !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%s: %v", c.own, got)
		}
	}
}

// A --binary that can be no program is refused with what is wrong about it, before the gateway is asked.
func TestBinaryThatIsNoProgram(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{
		filepath.Join(dir, "none"): "there is no such file", dir: "it is not a file", plain: "it may not be executed (mode 0640): chmod +x",
	} {
		if err := isProgram(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, expected %q", path, err, says)
		}
	}
	if err := os.Chmod(plain, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := isProgram(plain); err != nil {
		t.Error(err)
	}
}
