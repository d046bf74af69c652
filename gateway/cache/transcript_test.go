package cache

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/xebec-serving/xebec/api"
)

// TestTranscripts runs the scripts in testdata/transcripts on one small shard. Commands:
//
//	new blocks=40                    a shard of that many blocks
//	ask a b c                        request inputs; a miss is filled at once. Prints what was evicted for it
//	  name:5                         an entry of five blocks, when it is filled for the first time
//	lead a  fill a  fail a           the same, step by step
//	drop                             drop the model and make a new one
//	show                             the queues from oldest to newest with blocks and uses, and the spare blocks
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		var p *runner
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "new" {
				var blocks int
				d.ScanArgs(t, "blocks", &blocks)
				p = newRunner(t, blocks)
				return ""
			}
			var out strings.Builder
			for i := range d.CmdArgs {
				fmt.Fprintln(&out, p.do(t, d.Cmd, d.CmdArgs[i].String()))
			}
			switch d.Cmd {
			case "drop":
				p.model.Drop()
				p.model = p.cache.Model()
			case "show":
				return p.show()
			}
			p.cache.check(t)
			return out.String()
		})
	})
}

type runner struct {
	cache  *Cache
	model  *Model
	blocks map[string]int
	leads  map[string]*testWaiter
}

func newRunner(t *testing.T, blocks int) *runner {
	c := newCache(1<<20, 1, 1)
	s := &c.shards[0]
	if blocks > s.capacity {
		t.Fatalf("new: at most %d blocks", s.capacity)
	}
	s.capacity, s.quota, s.maxInFlightBlocks = blocks, blocks/probationShare, blocks/2
	c.maxEntryBytes = headBody + (blocks/entryShare-1)*tailBody
	return &runner{cache: c, model: c.Model(), blocks: map[string]int{}, leads: map[string]*testWaiter{}}
}

func (p *runner) do(t *testing.T, cmd, arg string) string {
	name, size, sized := strings.Cut(arg, ":")
	if sized {
		n := 0
		fmt.Sscan(size, &n)
		p.blocks[name] = n
	} else if p.blocks[name] == 0 {
		p.blocks[name] = 1
	}
	before := p.entries()
	what := ""
	switch cmd {
	case "ask", "lead":
		a := newTestWaiter()
		o := a.request(p.model, "", one(name))
		what = o.String()
		if o != Lead {
			break
		}
		p.leads[name] = a
		if cmd == "ask" {
			p.fill(name)
			what = "miss"
		}
	case "fill":
		p.fill(name)
		what = "filled"
	case "fail":
		p.leads[name].Fail(api.ModelError)
		delete(p.leads, name)
		what = "failed"
	default:
		t.Fatalf("unknown command %s", cmd)
	}
	after := p.entries()
	if (what == "miss" || what == "filled") && !slices.Contains(after, name) {
		what += ", not kept"
	}
	before = slices.DeleteFunc(before, func(name string) bool { return slices.Contains(after, name) })
	if len(before) > 0 {
		what += "; out: " + strings.Join(before, " ")
	}
	return name + ": " + what
}

// fill pads the output so that the entry has its size in blocks.
func (p *runner) fill(name string) {
	body := headBody + (p.blocks[name]-1)*tailBody
	p.leads[name].Fill(one(strings.Repeat("o", body-encodedBytes(one(name))-valueBytes)), 1)
	delete(p.leads, name)
}

// name returns an entry's input.
func (p *runner) name(e *head) string {
	in := make([]byte, e.inputBytes)
	c := p.cache.shards[0].begin(e)
	c.read(in)
	return string(in[valueBytes:])
}

// entries returns the names of all entries that can be hit, by queue and age.
func (p *runner) entries() []string {
	var names []string
	s := &p.cache.shards[0]
	for q := probation; q < queueNames; q++ {
		for i := s.queues[q].oldest; i != 0; i = s.at(i).newer {
			names = append(names, p.name(s.at(i)))
		}
	}
	return names
}

func (p *runner) show() string {
	var b strings.Builder
	s := &p.cache.shards[0]
	for name := probation; name < queueNames; name++ {
		fmt.Fprintf(&b, "%s, %d blocks:", []string{"", "probation", "protected"}[name], s.queues[name].blocks)
		for i := s.queues[name].oldest; i != 0; i = s.at(i).newer {
			e := s.at(i)
			b.WriteString(" " + p.name(e))
			if n := e.blocks(); n > 1 {
				fmt.Fprintf(&b, ":%d", n)
			}
			b.WriteString(strings.Repeat("+", int(e.uses)))
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "spare: %d\n", s.spare())
	return b.String()
}
