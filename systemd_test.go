package xebec

import (
	"os"
	"strings"
	"testing"
)

// The guide shows the units that are in deploy/systemd.
func TestDocsUnits(t *testing.T) {
	page, err := os.ReadFile("deploy/guide/systemd.md")
	if err != nil {
		t.Fatal(err)
	}
	unit, err := os.ReadFile("deploy/systemd/xebec.service")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```ini\n"+string(unit)+"```\n") {
		t.Error("deploy/guide/systemd.md shows another unit than deploy/systemd/xebec.service")
	}
	socket, err := os.ReadFile("deploy/systemd/xebec.socket")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(page), "```ini\n[Socket]\n")
	shown, _, _ = strings.Cut(shown, "```\n")
	if shown == "" || !strings.Contains(string(socket), "[Socket]\n"+shown) {
		t.Error("deploy/guide/systemd.md shows another [Socket] than deploy/systemd/xebec.socket")
	}
}
