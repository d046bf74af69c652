package query

import (
	"errors"
	"fmt"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/scheduler"
)

// inheriting are two processes of one gateway: old has answered queries, next takes over.
func inheriting(t *testing.T, policy string, sig api.Signature, models ...func(*scheduler.Item)) (old, next *crowd) {
	old, next = gather(t, policy, nil, sig, models), gather(t, policy, nil, sig, models)
	old.p.ids.gateway, next.p.ids.gateway = 1<<sequenceBits, 2<<sequenceBits
	old.p.joins.gateway, next.p.joins.gateway = 1<<sequenceBits, 2<<sequenceBits
	next.p.AskBefore(func(id uint64, function string) (Past, error) { return old.p.TakePast(id, function), nil })
	return old, next
}

func (c *crowd) label(id uint64, label int, want Outcome) {
	c.t.Helper()
	c.feed(fmt.Sprintf(`{"query_id":%d,"label":%d}`, id, label), want)
}

// Feedback for a query that the old process has answered counts once: at the new process, at the old one, before the rest is passed
// on and after it. What it teaches is what it would have taught there.
func TestFeedbackOfTheProcessBefore(t *testing.T) {
	for _, policy := range []string{"exp3", "exp4", "thompson"} {
		t.Run(policy, func(t *testing.T) {
			old, next := inheriting(t, policy, floats4, says(1), says(2))
			ids := [5]uint64{}
			for i := range ids {
				ids[i] = old.ask(`{"input":[1,2,3,4],"context":"ann"}`).ID
			}
			next.label(ids[0], 1, Counted)
			next.label(ids[0], 1, Duplicate)
			old.label(ids[0], 1, Duplicate)
			old.label(ids[1], 1, Counted)
			next.label(ids[1], 1, Duplicate)
			next.label(12345, 1, UnknownQuery)

			if err := old.p.PassOn(next.p.Inherit); err != nil {
				t.Fatal(err)
			}
			next.label(ids[0], 1, Duplicate)
			next.label(ids[2], 1, Counted)
			next.p.AskBefore(nil)
			next.label(ids[1], 1, Duplicate)
			next.label(ids[2], 1, Duplicate)
			next.label(ids[3], 1, Counted)

			third := gather(t, policy, nil, floats4, []func(*scheduler.Item){says(1), says(2)})
			if err := next.p.PassOn(third.p.Inherit); err != nil {
				t.Fatal(err)
			}
			third.label(ids[3], 1, Duplicate)
			third.label(ids[4], 1, Counted)
			if n, mean := next.fn.Losses[0].Read(); policy == "exp4" && (n != 3 || mean != 0) {
				t.Errorf("the first model has %d losses of %v: want 3 of 0", n, mean)
			}
		})
	}
}

// Predictions that losses are computed from are inherited too.
func TestInheritedNumbers(t *testing.T) {
	old, next := inheriting(t, "exp4", floatsOut, saysFloat(1), saysFloat(5))
	id := old.ask(input).ID
	next.feed(fmt.Sprintf(`{"query_id":%d,"label":1}`, id), Counted)
	if n, mean := next.fn.Losses[1].Read(); n != 1 || mean <= 0 {
		t.Errorf("the second model has %d losses of %v: want one above 0", n, mean)
	}
}

// What is inherited is forgotten with its function, beyond the window, and where the candidates are others by now.
func TestInheritedIsForgotten(t *testing.T) {
	old, next := inheriting(t, "exp4", floats4, says(1))
	next.p.joins = newJoins(2, DefaultFeedbackBytes, &next.p.ids)
	var ids [4]uint64
	for i := range ids {
		ids[i] = old.ask(input).ID
	}
	if err := old.p.PassOn(next.p.Inherit); err != nil {
		t.Fatal(err)
	}
	next.label(ids[0], 1, UnknownQuery) // beyond the window of 2
	next.label(ids[2], 1, Counted)
	next.p.Forget("f")
	next.label(ids[3], 1, UnknownQuery)

	id := old.ask(input).ID
	other := *next.fn
	other.Candidates = []Candidate{{Model: NewModel(api.ModelID{Name: "a", Version: "2"}, floats4, next.lanes[0], 0, new(obs.Endpoint))}}
	next.p.Publish(&Table{Functions: map[string]*Function{"f": &other}})
	next.label(id, 1, UnknownQuery)

	failed := errors.New("the other process is gone")
	old.ask(input)
	if err := old.p.PassOn(func([]byte) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
}

// A record from another process is parsed without trust: whatever it has, nothing panics.
func FuzzInherit(f *testing.F) {
	records := func(t *testing.T) (next *crowd, all [][]byte) {
		old, next := inheriting(t, "exp4", floatsOut, saysFloat(1), saysFloat(5))
		old.ask(`{"input":[1,2,3,4],"context":"ann"}`)
		if err := old.p.PassOn(func(record []byte) error { all = append(all, record); return nil }); err != nil {
			t.Fatal(err)
		}
		return next, all
	}
	f.Add(uint16(0), []byte{})
	f.Add(uint16(2), []byte{255, 255})
	f.Add(uint16(60), []byte("f"))
	f.Fuzz(func(t *testing.T, at uint16, change []byte) {
		next, all := records(t)
		for _, record := range all {
			bytes := append([]byte(nil), record...)
			bytes = append(bytes[:min(int(at), len(bytes))], append(change, bytes[min(int(at)+len(change), len(bytes)):]...)...)
			_ = next.p.Inherit(bytes)
			for _, id := range append([]uint64(nil), next.p.inherited.order...) {
				_, _ = next.feedback("f", fmt.Sprintf(`{"query_id":%d,"label":1}`, id))
			}
			next.p.inherited.forget("f")
		}
	})
}
