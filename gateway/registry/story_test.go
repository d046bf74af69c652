package registry

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/xebec-serving/xebec/api"
)

// TestStories runs the transcripts in testdata: an event above the line of dashes, and below it the resulting steps and
// the state of the model.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := newWorld(api.TrafficSpec{})
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.log = nil
			if d.Cmd == "new" {
				w = newWorld(api.TrafficSpec{})
				w.m.Spare = d.HasArg("spare")
				w.m.Default.Latest = 1
				if d.HasArg("all") {
					w.m.Default = api.VersionPolicy{All: true}
				}
			} else if err := w.do(t, d); err != nil {
				return "refused: " + err.Error() + "\n"
			}
			w.reconcile(-1)
			return strings.Join(append(w.log, w.String()), "\n")
		})
	})
}

func (w *world) do(t *testing.T, d *datadriven.TestData) error {
	var names []string
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			names = append(names, a.Key)
		}
	}
	value := func(key string) (s string) {
		d.MaybeScanArgs(t, key, &s)
		return s
	}
	switch d.Cmd {
	case "declare":
		w.declare(names...)
	case "delete":
		for _, n := range names {
			w.find(n).Gone = true
		}
	case "traffic": // a manifest's fields, as JSON
		next := api.TrafficSpec{}
		if err := json.Unmarshal([]byte(d.Input), &next); err != nil {
			t.Fatalf("%s: %v", d.Pos, err)
		}
		next.Model = "digits"
		w.t = next
	case "promote":
		next, err := Promote(w.t, &w.m, strings.Join(names, ""))
		if err != nil {
			return err
		}
		w.show(next)
	case "rollback":
		next, err := Rollback(w.t, &w.m, strings.Join(names, ""), value("previous"), value("reason"))
		if err != nil {
			return err
		}
		w.show(next)
	case "over":
		w.log = append(w.log, map[bool]string{true: "the rollback is over", false: "the rollback holds"}[newView(&w.m).over])
	default:
		return w.happen(t, d, names)
	}
	return nil
}

// happen applies events of versions and replicas.
func (w *world) happen(t *testing.T, d *datadriven.TestData, names []string) error {
	defer func() {
		if r := recover(); r != nil {
			t.Fatalf("%s: %v\n%s", d.Pos, r, w)
		}
	}()
	for _, n := range names {
		switch d.Cmd {
		case "ready":
			w.to(n, Validating)
		case "pass":
			w.to(n, Available)
		case "up": // ready and pass
			w.to(n, Validating)
			w.to(n, Available)
		case "fail":
			w.to(n, Rejected)
		case "drained":
			w.to(n, Declared)
		case "lost":
			w.find(n).Troubled = true
		case "asleep":
			w.find(n).Asleep = true
		case "awake":
			w.find(n).Asleep = false
		case "starts-fail":
			w.find(n).Failing = true
		case "back":
			w.find(n).Troubled, w.find(n).Failing = false, false
		case "name":
			w.find(n).Named = true
		default:
			t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
		}
	}
	return nil
}

func (w *world) show(next api.TrafficSpec) {
	w.t = next
	data, err := json.Marshal(next)
	if err != nil {
		panic(err)
	}
	w.log = append(w.log, string(data))
}
