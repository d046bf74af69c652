package learned

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Two gateways with one store get different feedback for more contexts than fit into their memories. Meanwhile the
// store goes down and comes back, loses replies, applies half of a call, and candidates change places or join. At the
// end the store has its base and every delta once, and both gateways have the store's numbers.
func TestGatewaysConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		contexts := []string{"", "ann", "bob", "eve", "dan"}
		layouts := [][]string{{"a", "b"}, {"b", "a"}, {"b", "c", "a"}}
		server := newFakeServer()
		const gateways = 2
		var stores [gateways]*fakeStore
		var tables [gateways]*manualTable
		var functions [gateways]*Function
		start := func(i int) {
			stores[i] = server.connect()
			tables[i] = newManualTable(Config{Store: stores[i], Contexts: 2})
			functions[i] = tables[i].Declare("f", tally{}, layouts[0])
		}
		for i := range gateways {
			start(i)
		}
		learned := map[string]float64{} // by context and field
		gateway := rapid.IntRange(0, gateways-1)

		t.Repeat(map[string]func(*rapid.T){
			"observe": func(t *rapid.T) {
				g := gateway.Draw(t, "gateway")
				context := rapid.SampledFrom(contexts).Draw(t, "context")
				refs := functions[g].Candidates()
				i := rapid.IntRange(0, len(refs)-1).Draw(t, "candidate")
				l := float64(rapid.IntRange(0, 8).Draw(t, "eighths")) / 8
				loss(functions[g], context, i, l)
				for _, c := range slices.Compact([]string{"", context}) {
					learned[c+"|"+refs[i]+"/0"]++
					learned[c+"|"+refs[i]+"/1"] += l
					learned[c+"|"+refs[i]+"/2"] -= l
				}
			},
			"ask": func(t *rapid.T) {
				ask(functions[gateway.Draw(t, "gateway")], rapid.SampledFrom(contexts).Draw(t, "context"))
			},
			"pass": func(t *rapid.T) {
				tables[gateway.Draw(t, "gateway")].advance(time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond)
			},
			"fault": func(t *rapid.T) {
				s := stores[gateway.Draw(t, "gateway")]
				switch rapid.IntRange(0, 3).Draw(t, "what") {
				case 0:
					s.away = true
				case 1:
					s.loseReply = true
				case 2:
					s.applyHalf = true
				default:
					s.away = false
				}
			},
			"declare": func(t *rapid.T) {
				g := gateway.Draw(t, "gateway")
				l := rapid.SampledFrom(layouts).Draw(t, "layout")
				if len(l) >= len(functions[g].Candidates()) { // unsent deltas of a removed candidate would be lost
					functions[g] = tables[g].Declare("f", tally{}, l)
				}
			},
			"restart": func(t *rapid.T) {
				g := gateway.Draw(t, "gateway")
				stores[g].away, stores[g].loseReply, stores[g].applyHalf = false, false, false
				if err := tables[g].lastFlush(t.Context()); err != nil { // as Close does
					t.Fatal(err)
				}
				start(g)
			},
		})

		for g := range gateways {
			stores[g].away, stores[g].loseReply, stores[g].applyHalf = false, false, false
			functions[g] = tables[g].Declare("f", tally{}, layouts[2])
			tables[g].advance(2 * maxBackoff)
			if s := tables[g].Stats(); s.Pending != 0 || s.Lost != 0 || s.Contexts > 2 {
				t.Fatalf("gateway %d at the end: %+v", g, s)
			}
		}
		for _, context := range contexts {
			k := key("f", context)
			for name, v := range server.states[k] {
				if want := server.bases[k][name] + learned[context+"|"+name]; math.Abs(v-want) > 1e-9 {
					t.Errorf("the store has %g for %s of %q, want the base %g plus deltas of %g, each counted once", v, name, context, server.bases[k][name], learned[context+"|"+name])
				}
			}
			var seen [gateways][]float64
			for g := range gateways {
				ask(functions[g], context)
				tables[g].advance(DefaultRefresh)
				seen[g] = peek(functions[g], context)
				for i, name := range functions[g].states.layout.fields {
					if v := server.field(k, name); !math.IsNaN(v) && math.Abs(v-seen[g][i]) > 1e-9 {
						t.Errorf("gateway %d has %g for %s of %q, the store %g", g, seen[g][i], name, context, v)
					}
				}
			}
		}
		for g := range gateways {
			checkShards(t, functions[g])
		}
	})
}

// checkShards checks that no entry, record or list member is leaked.
func checkShards(t *rapid.T, f *Function) {
	p := f.states.shards.Load()
	if p == nil {
		return
	}
	for n := range *p {
		s := &(*p)[n]
		var seen, isResident, ledgers int
		for i := range s.entries {
			e := &s.entries[i]
			if e.flags&live == 0 {
				continue
			}
			seen++
			if e.flags&resident != 0 {
				isResident++
			} else if e.record == none {
				t.Errorf("shard %d: entry %d was evicted, has nothing to send, and is still in the index", n, i)
			}
			if e.record != none {
				ledgers++
				led, sum := s.ledger(e.record), make([]float64, s.layout.width())
				led.sum(sum)
				for k, v := range sum {
					if math.Abs(v-s.value(int32(i))[k]) > 1e-9 {
						t.Errorf("shard %d, entry %d: value %v, ledger %+v", n, i, s.value(int32(i)), led)
					}
				}
			}
			if s.find(s.context(e), e.hash) != int32(i) {
				t.Errorf("shard %d: entry %d cannot be found", n, i)
			}
		}
		walked := 0
		for i := s.oldest; i != none; i = s.entries[i].newer {
			walked++
		}
		if seen != s.count || isResident != s.resident || walked != s.resident || ledgers != s.ledgerLen {
			t.Errorf("shard %d: %s", n, fmt.Sprint("entries ", seen, s.count, " resident ", isResident, s.resident, walked, " ledgers ", ledgers, s.ledgerLen))
		}
	}
}
