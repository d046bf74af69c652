package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// TestNodeOfWhichTooMuchIsTaken: nobody has less than nothing free.
func TestNodeOfWhichTooMuchIsTaken(t *testing.T) {
	var out bytes.Buffer
	c := &cli{out: &out}
	n := api.NodeStatus{
		Budget: api.ResourceStatus{CPU: 2, MemoryBytes: 600 << 20, GPU: 1}, Free: api.ResourceStatus{CPU: -0.5, MemoryBytes: -30 << 20, GPU: -1}, From: "what the machine has", Awake: 3,
	}
	if err := c.page(func(p *page) error { p.node(&n); return nil }); err != nil {
		t.Fatal(err)
	}
	const want = "0 of 2 cores free, 0 of 600 MiB of memory, 0 of 1 GPUs (what the machine has)"
	if !strings.Contains(out.String(), want) {
		t.Errorf("got\n%sexpected %q", out.String(), want)
	}
}
