package hostile

import (
	"net"
	"strings"
	"testing"
)

// Many clients ask for answers below the size from which one needs room in advance, and read none of them. What the kernel does not take is
// bounded as large answers are: some of the clients are cut off, and one that reads is served.
func TestManySmallUnreadAnswers(t *testing.T) {
	t.Parallel()
	const (
		clients = 300
		ahead   = 40 // far more than the kernel takes
		size    = 60_000
	)
	g := serve(t, "--config", answering(t), "--max-body", "1MiB", "--body-memory", "8MiB")
	g.until("the function answers", func() bool {
		answer, _ := ask(g.dial(g.functions), 10)
		return answer != nil && answer.StatusCode == 200
	})
	for range clients {
		c := g.dial(g.functions)
		if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		g.send(c, strings.Repeat(wanting(size), ahead))
	}
	g.until("clients are cut off", func() bool {
		n := g.metric(`xebec_edge_refused_total{port="functions",reason="body_memory"}`)
		return n != "" && n != "0"
	})
	g.until("a client that reads gets its answer", func() bool {
		answer, n := ask(g.dial(g.functions), size)
		return answer != nil && answer.StatusCode == 200 && n >= size
	})
	g.ports(func(_, address string) { g.alive(g.dial(address)) })
}
