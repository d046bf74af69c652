package sim

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// Tail keeps the last lines written to it.
type Tail struct {
	most  int
	lines []string
	part  []byte
}

// NewTail makes a Tail that keeps the last most lines.
func NewTail(most int) *Tail { return &Tail{most: most} }

// Write adds text, which need not end with a line.
func (t *Tail) Write(p []byte) (int, error) {
	t.part = append(t.part, p...)
	for {
		i := bytes.IndexByte(t.part, '\n')
		if i < 0 {
			return len(p), nil
		}
		if len(t.lines) >= 2*t.most {
			t.lines = append(t.lines[:0], t.lines[len(t.lines)-t.most:]...)
		}
		t.lines = append(t.lines, string(t.part[:i]))
		t.part = append(t.part[:0], t.part[i+1:]...)
	}
}

// String returns the lines kept.
func (t *Tail) String() string {
	kept := t.lines[max(0, len(t.lines)-t.most):]
	return strings.Join(kept, "\n") + "\n"
}

// writeActions writes an engine's actions to the transcript.
func (w *world) writeActions(m *model) {
	a := &m.acts
	for i := range a.Dispatches {
		d := &a.Dispatches[i]
		var b strings.Builder
		verb := "send"
		if d.Hedge {
			verb = "hedge"
		}
		fmt.Fprintf(&b, "> %s r%d#%d:", verb, d.Replica, d.Batch.ID)
		for _, q := range d.Batch.Queries {
			fmt.Fprintf(&b, " q%d", q.ID)
		}
		if d.Batch.Pad > 0 {
			fmt.Fprintf(&b, " +%d", d.Batch.Pad)
		}
		w.write(m, b.String())
	}
	for _, k := range a.Kills {
		w.write(m, fmt.Sprintf("> kill r%d: %s", k.Replica, k.Reason))
	}
	verbs := [...]string{scheduler.Both: "end", scheduler.AnswerOnly: "answer", scheduler.ReleaseOnly: "release"}
	for _, e := range a.Ends {
		w.write(m, fmt.Sprintf("> %s q%d %v", verbs[e.Kind], e.Item.ID, e.Code))
	}
	for _, id := range a.Drained {
		w.write(m, fmt.Sprintf("> drained r%d", id))
	}
	if a.EndTurn != 0 {
		w.write(m, fmt.Sprintf("> end turn after %v", span(api.Nanos(a.EndTurn))))
	}
	if a.WantTurn {
		w.write(m, "> want turn")
	}
}
