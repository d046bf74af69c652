package main

import (
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// TestOvercommittedNode: at least 0 is free.
func TestOvercommittedNode(t *testing.T) {
	c := newConsole("")
	n := api.NodeStatus{
		Budget: api.ResourceStatus{CPU: 2, MemoryBytes: 600 << 20, GPU: 1}, Free: api.ResourceStatus{CPU: -0.5, MemoryBytes: -30 << 20, GPU: -1}, From: "what the machine has", Awake: 3,
	}
	if err := c.page(func(p *page) error { p.node(&n); return nil }); err != nil {
		t.Fatal(err)
	}
	const want = "0 of 2 cores free, 0 of 600 MiB of memory, 0 of 1 GPUs (what the machine has)"
	if got := c.stdout.String(); !strings.Contains(got, want) {
		t.Errorf("got\n%sexpected %q", got, want)
	}
}
