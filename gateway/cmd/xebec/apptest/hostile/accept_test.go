package hostile

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// The repros with thousands of connections, made small: a gateway that may open 600 files meets 900 connections.
const (
	fewFiles = 600
	tooMany  = 900
)

// limited is a gateway that may open few files.
func limited(t *testing.T, args ...string) *gateway {
	t.Helper()
	return serveAfter(t, fmt.Sprintf("ulimit -n %d", fewFiles), args...)
}

// flood opens connections that send nothing.
func (g *gateway) flood(address string) (open []net.Conn, end func()) {
	g.t.Helper()
	for range tooMany {
		open = append(open, g.dial(address))
	}
	return open, func() {
		for _, c := range open {
			c.Close()
		}
	}
}

func TestConnectionsDoNotEndTheGateway(t *testing.T) {
	t.Parallel()
	t.Run("to the admin port", func(t *testing.T) {
		t.Parallel()
		g := limited(t)
		before := g.dial(g.functions)
		g.alive(before)
		_, end := g.flood(g.admin)
		g.alive(before)
		end()
		g.until("the admin port counts what it did not accept", func() bool {
			n := g.metric(`xebec_accept_errors_total{port="admin"}`)
			return n != "" && n != "0"
		})
		g.alive(before)
	})
	t.Run("to the function port", func(t *testing.T) {
		t.Parallel()
		g := limited(t)
		if !strings.Contains(g.text(), "too low for --max-connections") {
			t.Error("the log does not say that the limit of open files is too low")
		}
		before := g.dial(g.functions)
		g.alive(before)
		_, end := g.flood(g.functions)
		defer end()
		g.until("the admin port answers", func() bool { return g.metric(`xebec_accept_errors_total{port="functions"}`) != "" })
		g.alive(before)
	})
}
