package learned

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/internal/state/redistest"
)

// Two gateways share a real Redis server, which is killed and restarted while they learn. At the end each delta is
// counted once, and both gateways have the same state.
func TestRedisKilledInTheMiddle(t *testing.T) {
	server := redistest.Start(t, redistest.Config{AppendOnly: true})
	var tables [2]*Table
	var functions [2]*Function
	for i := range tables {
		store, err := state.OpenRedis(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		tables[i] = newTable(Config{Store: store, Contexts: 64, Refresh: 5 * time.Millisecond})
		tables[i].writer.minBackoff, tables[i].writer.maxBackoff = time.Millisecond, 20*time.Millisecond
		go tables[i].run()
		functions[i] = tables[i].Declare("f", tally{}, []string{"a", "b"})
	}
	const contexts = 10
	learn := func(rounds int) {
		for i := range rounds {
			loss(functions[i%2], fmt.Sprintf("user %d", i/2%contexts), i/2%2, 0.125)
		}
	}
	written := func(tables ...*Table) {
		t.Helper()
		for _, table := range tables {
			until(t, "everything is written", func() bool { return table.Stats().Pending == 0 })
		}
	}
	learn(200)
	written(tables[:]...)
	learn(200) // some updates are in flight when the server dies
	server.Kill()
	learn(200)
	until(t, "the gateways notice", func() bool { return tables[0].Stats().Unavailable && tables[1].Stats().Unavailable })
	server.Restart()
	written(tables[:]...)
	learn(200)
	written(tables[:]...)

	for c := range contexts + 1 {
		context := fmt.Sprintf("user %d", c)
		if c == contexts {
			context = ""
		}
		until(t, "both gateways have the same state of "+context, func() bool {
			ask(functions[0], context)
			ask(functions[1], context)
			a, b := peek(functions[0], context), peek(functions[1], context)
			return fmt.Sprint(a) == fmt.Sprint(b)
		})
		s := functions[0].states.layout.state(peek(functions[0], context))
		want := 800.0 / contexts
		if context == "" {
			want = 800
		}
		near(t, "counted losses of "+context, []float64{s.Row(0)[0] + s.Row(1)[0], s.Row(0)[1] + s.Row(1)[1]}, want, want/8)
	}
	for _, table := range tables {
		closeTable(t, table)
	}
}

// A file restores what was learned after the gateway restarts.
func TestFileOutlivesTheGateway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	for run := range 3 {
		store, err := state.OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		table := New(Config{Store: store, Flush: time.Millisecond})
		f := table.Declare("f", tally{}, []string{"a", "b"})
		ask(f, "ann")
		want := 1 - float64(run)/4
		until(t, "ann and the function are as they were", func() bool {
			return weights(f, "ann")[0] == want && weights(f, "")[0] == want
		})
		loss(f, "ann", 0, 0.25)
		if run == 1 { // written in the background, without Close
			until(t, "everything is written", func() bool { return table.Stats().Pending == 0 })
		}
		closeTable(t, table)
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
