package query

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
)

// namedPath is a path with the function "f" over m and a@1, the function "m", and the models m (versions 1 and 2, which serves) and a.
func namedPath(t *testing.T) (*Path, map[string]*Model) {
	t.Helper()
	p := New(Config{Now: func() api.Nanos { return 1 }})
	models := map[string]*Model{}
	table := &Table{Models: map[string]*Model{}, Versions: map[api.ModelID]*Model{}}
	for _, id := range []api.ModelID{{Name: "m", Version: "1"}, {Name: "m", Version: "2"}, {Name: "a", Version: "1"}} {
		m := NewModel(id, querytest.Floats4, &querytest.Lane{}, 0, new(obs.Endpoint))
		models[id.String()], table.Versions[id], table.Models[id.Name] = m, m, m
	}
	table.Versions[api.ModelID{Name: "m", Version: "stable"}] = models["m@1"]
	table.Functions = map[string]*Function{
		"f": {Name: "f", Candidates: []Candidate{{Model: models["m@2"]}, {Model: models["a@1"]}}, Stats: new(obs.Endpoint)},
		"m": {Name: "m", Candidates: []Candidate{{Model: models["m@2"]}}, Stats: new(obs.Endpoint)},
	}
	p.Publish(table)
	return p, models
}

func TestNamed(t *testing.T) {
	p, _ := namedPath(t)
	var o owner
	o.Init(p, &o)
	for _, c := range []struct{ name, version, want, fails string }{
		{"f", "", "function f", ""},
		{"m", "", "function m", ""},
		{"a", "", "model a@1", ""},
		{"a", "1", "model a@1", ""},
		{"m", "1", "model m@1", ""},
		{"m", "stable", "model m@1", ""},
		{"m@2", "", "model m@2", ""},
		{"m@stable", "", "model m@1", ""},
		{"m@1", "1", "model m@1", ""},
		{"m@1", "2", "", `"m@1" has a version of its own: expected it without the version "2"`},
		{"m@", "", "", `"m@": expected a version behind the @`},
		{"m@9", "", "", `no model "m@9"`},
		{"a", "9", "", `no model "a@9"`},
		{"f", "1", "", `"f" is a function, which has no version "1": ask for it without a version, or for one of its models: m@2, a@1`},
		{"x", "", "", "no function or model \"x\": `xebec get functions` and `xebec get models` list those that exist"},
		{"x@1", "", "", "no function or model \"x\": `xebec get functions` and `xebec get models` list those that exist"},
		{"@", "", "", `"@": expected a version behind the @`},
		{"", "", "", "no function or model \"\": `xebec get functions` and `xebec get models` list those that exist"},
	} {
		n, err := p.Named(c.name, c.version)
		o.Open()
		err2 := o.AskNamed(c.name, c.version)
		got, asked := "", ""
		if err == nil {
			got = "model " + n.Model.Ref()
			if n.Function != nil {
				got = "function " + n.Function.Name
			}
		}
		if err2 == nil {
			asked = "model " + o.Model().Ref()
			if o.Function() != nil {
				asked = "function " + o.Function().Name
			}
		}
		o.Drop()
		if got != c.want || asked != c.want || (err == nil) != (c.fails == "") || (err2 == nil) != (c.fails == "") {
			t.Errorf("%q %q is %q (%v), and asks %q (%v), want %q", c.name, c.version, got, err, asked, err2, c.want)
			continue
		}
		if err != nil && (err.Error() != c.fails || err2.Error() != c.fails) {
			t.Errorf("%q %q fails with\n%v\n%v\nwant\n%v", c.name, c.version, err, err2, c.fails)
		}
	}
}

// owner owns a request that is never submitted.
type owner struct{ Request }

func (*owner) Settled() api.Code { return api.OK }
func (*owner) Deliver()          {}
func (*owner) Released()         {}

func TestNames(t *testing.T) {
	p, models := namedPath(t)
	var got []string
	for _, n := range p.Names() {
		kind := "model "
		if n.Function != nil {
			kind = "function "
		}
		got = append(got, kind+n.Name)
	}
	want := []string{"model a", "function f", "function m", "model m@2"}
	if len(got) != len(want) {
		t.Fatalf("names %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("names %q, want %q", got, want)
		}
	}
	f, err := p.Named("f", "")
	if err != nil || f.Available() {
		t.Errorf("a function without a replica: available %v, %v", f.Available(), err)
	}
	if models["a@1"].Ready.Store(1); !f.Available() {
		t.Error("a function whose second candidate has a replica is not available")
	}
}

// TestOptionsOfFunctions: a request that addresses a model has none of them.
func TestOptionsOfFunctions(t *testing.T) {
	p, _ := namedPath(t)
	var o owner
	o.Init(p, &o)
	o.Open()
	defer o.Drop()
	if err := o.AskNamed("a", ""); err != nil {
		t.Fatal(err)
	}
	if err := o.SetMinConfidence(0.5); err == nil || o.Restrict([][]byte{[]byte("a")}) == nil {
		t.Error("a model takes a function's options")
	}
}

// TestIDsAreConsecutive: also where sequence numbers start again.
func TestIDsAreConsecutive(t *testing.T) {
	var q queryIDs
	q.init()
	for _, from := range []uint64{1, 1<<sequenceBits - 3, 5<<sequenceBits - 1} {
		q.next.Store(from)
		for range 3 {
			const n = 5
			first := q.take(n)
			for i := range uint64(n) {
				if q.id(first+i) != q.id(first)+i {
					t.Errorf("from %d: id %d of a request is %d behind the first", from, i, q.id(first+i)-q.id(first))
				}
			}
		}
	}
}
