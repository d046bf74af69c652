package main

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/resultstest"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// twoModels is a stream in which the first model is always right and the second never, until they change places.
func twoModels(queries, change int) *stream {
	s := &stream{models: 2, labels: make([]int32, queries), phases: []int{change}}
	for q := range queries {
		right, wrong := int32(0), int32(1)
		if q >= change {
			right, wrong = 1, 0
		}
		s.answers = append(s.answers, right, wrong)
	}
	return s
}

func TestPlayFollowsTheBetterModel(t *testing.T) {
	s := twoModels(400, 300)
	if got := s.best(); errorRate(got[:300]) != 0 || errorRate(got[300:]) != 1 {
		t.Errorf("the best model errs in %v of all", errorRate(got))
	}
	for _, c := range contenders {
		p, err := c.player(2, 1)
		if err != nil {
			t.Fatal(err)
		}
		wrong := p.play(s)
		if c.Silent {
			if errorRate(wrong) != 0.25 { // of two answers the first model's
				t.Errorf("%s: %v", c.Name, errorRate(wrong))
			}
			continue
		}
		early := errorRate(wrong[200:300])
		if strings.Contains(c.Name, "eta 0.01") { // half as slow: 100 losses of 0.01 are a factor of e
			early /= 3
		}
		if early > 0.15 {
			t.Errorf("%s has not found the better model: %v", c.Name, errorRate(wrong[200:300]))
		}
	}
}

// A user's best model and state are its own.
func TestPlayByUser(t *testing.T) {
	s := &stream{models: 2, labels: make([]int32, 400)}
	for q := range s.labels {
		user := int32(q % 2)
		s.users = append(s.users, user)
		s.answers = append(s.answers, user, 1-user) // model 0 is right for user 0, model 1 for user 1
	}
	if errorRate(s.best()) != 0 {
		t.Error("each user has a model that is never wrong")
	}
	for _, fresh := range []bool{false, true} {
		c := contender{Name: "exp4", Policy: "exp4", Fresh: fresh}
		p, err := c.player(2, 1)
		if err != nil {
			t.Fatal(err)
		}
		if late := errorRate(p.play(s)[200:]); late != 0 || len(p.users) != 2 {
			t.Errorf("fresh %v: %v errors, %d users", fresh, late, len(p.users))
		}
	}
}

// A policy that sees the inputs learns which model is right for which; the others cannot know. What it has learned is of all users.
func TestPlayByInput(t *testing.T) {
	draw := sourceOf(3)
	s := &stream{models: 2, labels: make([]int32, 2000), specs: []api.TensorSpec{{Name: groupInput, DType: api.Float32, Shape: []int64{2}}}}
	var kinds []api.Value
	for q := range s.labels {
		kind := draw.IntN(2)
		s.users = append(s.users, int32(q%10))
		kinds = append(kinds, api.Numbers([][]float32{{1, 0}, {0, 1}}[kind]...))
		s.answers = append(s.answers, int32(kind), int32(1-kind))
	}
	s.inputs = func(q int) []api.Value { return kinds[q : q+1] }
	late := map[string]float64{}
	for _, c := range append(slices.Clone(contenders), routers[2]) {
		p, err := c.player(2, 1)
		if err != nil {
			t.Fatal(err)
		}
		late[c.Name] = errorRate(p.play(s)[1000:])
	}
	for name, rate := range late {
		if routed := name == routers[2].Name; routed && rate > 0.01 || !routed && (rate < 0.4 || rate > 0.6) {
			t.Errorf("%s: %v errors", name, rate)
		}
	}
}

// The inputs of figure 10 are those of the query's row and user.
func TestInputsByUser(t *testing.T) {
	e := dataSet{&experiment{about: about{Pixels: 2, QueriesPerUser: 3, Models: []Trained{{Name: "a"}, {Name: "b"}, {Name: "all"}}, Users: []user{{Group: 1}, {Group: 0}}}}, 10}
	e.answers = map[string][]int64{}
	for row := range 6 {
		e.rows, e.labels = append(e.rows, []byte{byte(row), 0}), append(e.labels, int64(row))
		for _, m := range e.Models {
			e.answers[m.Name] = append(e.answers[m.Name], int64(row))
		}
	}
	s := e.byUser(1)
	for q := range s.labels {
		in := selection.Tensors{Specs: s.specs, Values: s.inputs(q)}
		image, _ := in.Named(imageInput)
		group, _ := in.Named(groupInput)
		if image.Number(0) != float64(s.labels[q]) || int32(image.Number(0))/3 != s.users[q] || group.Elements() != 2 || group.Number(e.Users[s.users[q]].Group) != 1 {
			t.Errorf("query %d of user %d: image %v, group %v", q, s.users[q], image.Number(0), group.Value.Data)
		}
	}
}

func TestDegrade(t *testing.T) {
	s := twoModels(2000, 2000)
	s.phases = nil
	s.degrade(0, 500, 1000, 10, sourceOf(1))
	wrong := s.wrong(func(q int) int32 { return s.says(q)[0] })
	if errorRate(wrong[:500]) != 0 || errorRate(wrong[1000:]) != 0 || math.Abs(errorRate(wrong[500:1000])-spoiled) > 0.05 || !slices.Equal(s.phases, []int{500, 1000}) {
		t.Errorf("errors %v, %v, %v; phases %v", errorRate(wrong[:500]), errorRate(wrong[500:1000]), errorRate(wrong[1000:]), s.phases)
	}
}

// Any class but the model's own answer, each as often.
func TestGarble(t *testing.T) {
	s := twoModels(4000, 4000)
	s.phases = nil
	s.garble(0, 1000, 4000, 4, sourceOf(1))
	var named [4]float64
	for q := 1000; q < 4000; q++ {
		named[s.says(q)[0]] += 1.0 / 3000
	}
	for class, part := range named {
		want := spoiled / 3
		if class == 0 {
			want = 1 - spoiled
		}
		if math.Abs(part-want) > 0.03 {
			t.Errorf("class %d in %v of the answers, expected %v", class, part, want)
		}
	}
	if wrong := s.wrong(func(q int) int32 { return s.says(q)[0] }); errorRate(wrong[:1000]) != 0 || !slices.Equal(s.phases, []int{1000}) {
		t.Errorf("errors %v before; phases %v", errorRate(wrong[:1000]), s.phases)
	}
}

func TestSimulatedErrorsAreNested(t *testing.T) {
	s := simulated(20000, 1, func(int) []float64 { return []float64{0.1, 0.3} }, 3)
	good, bad := s.wrong(func(q int) int32 { return s.says(q)[0] }), s.wrong(func(q int) int32 { return s.says(q)[1] })
	for q := range good {
		if good[q] && (!bad[q] || s.says(q)[0] != s.says(q)[1]) {
			t.Fatal("the good model alone is wrong, or differently")
		}
	}
	if math.Abs(errorRate(good)-0.1) > 0.01 || math.Abs(errorRate(bad)-0.3) > 0.015 {
		t.Errorf("errors %v, %v", errorRate(good), errorRate(bad))
	}
}

// played has three orders in which policies have given errors.
func played(name, kind string, phases int) Played {
	p := Played{Name: name, What: "a " + name, Kind: kind, Queries: 1000, Models: 5}
	add := func(to *[]OrderRun, run string, rate float64) {
		r := OrderRun{Name: run, Errors: []float64{rate, rate + 0.01, rate + 0.02}}
		if phases > 1 {
			for range phases {
				r.PhaseErrors = append(r.PhaseErrors, r.Errors)
			}
		}
		*to = append(*to, r)
	}
	add(&p.Runs, bestRun, 0.2)
	if kind == personal {
		add(&p.Runs, reportedRun, 0.22)
		add(&p.Runs, forAllRun, 0.3)
	}
	for i, c := range contenders {
		add(&p.Runs, c.Name, 0.1+0.01*float64(i))
	}
	if kind == personal {
		for i, c := range routers {
			add(&p.Runs, c.Name, 0.3+0.01*float64(i))
		}
	}
	for _, c := range sweep() {
		add(&p.Sweep, c.Name, 0.15)
	}
	for _, runs := range [][]OrderRun{p.Runs, p.Sweep} {
		for i := range runs {
			runs[i].summarize(p.run(voteRun).Errors, p.run(bestRun).Errors)
		}
	}
	return p
}

func TestOrdersReport(t *testing.T) {
	o := &Orders{Taken: results.Taken{When: time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)}, Orders: 3, Contenders: contenders, Sweep: sweep(), Routers: routers,
		Scenarios: []Played{played("data set", stationary, 1), played("failure", drifting, 3), played("group", personal, 2)}}
	text := o.Markdown()
	resultstest.Contains(t, text,
		"3 orders of every scenario",
		"| data set | +1.00 ± 0.00, **more** | -9.00 ± 0.00, fewer | +2.00 ± 0.00, **more** | +3.00 ± 0.00, **more** | -2.00 ± 0.00, fewer |",
		"| data set | 21.00 ± 2.48 | 11.00 ± 2.48 | 12.00 ± 2.48 |",
		"**failure**:",
		"| exp4 | 12.00 ± 2.48 | 12.00 ± 2.48 | 12.00 ± 2.48 | 12.00 ± 2.48 | -9.00 ± 0.00, fewer |",
		"| exp4 | 12.00 ± 2.48 | 12.00 ± 2.48 | -11.00 ± 0.00, fewer |",
		"| linucb by the image | 31.00 ± 2.48 | 31.00 ± 2.48 | +8.00 ± 0.00, **more** |",
		"linucb has one for all users",
		"+5.00 ± 0.00 | +5.00 ± 0.00 | +5.00 ± 0.00 | data set: +5.00 ± 0.00, **more** |",
		"-5.00 ± 0.00 | -5.00 ± 0.00 | -5.00 ± 0.00 | – |",
	)
	if o.Empty() || strings.Contains(text, "NaN") {
		t.Error(text)
	}
	resultstest.Kept(t, o, "learning-orders")
}
