package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/resultstest"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// Stacking learns that one model's answer stands for another class; the vote cannot know.
func TestPlayShowsPredictionsAndLabels(t *testing.T) {
	draw := sourceOf(5)
	s := &stream{models: 3, labels: make([]int32, 3000)}
	for q := range s.labels {
		label := draw.Int32N(4)
		s.labels[q] = label
		s.answers = append(s.answers, (label+1)%4, label, draw.Int32N(4))
		if draw.IntN(2) == 0 { // the second model guesses in half of the queries
			s.says(q)[1] = draw.Int32N(4)
		}
	}
	late := map[string]float64{}
	for _, c := range []contender{{Name: stackingRun, Policy: "stacking"}, {Name: voteRun, Policy: "exp4", Silent: true}} {
		p, err := c.player(s.models, 1)
		if err != nil {
			t.Fatal(err)
		}
		late[c.Name] = errorRate(p.play(s)[1500:])
	}
	// It answers with what a model has said, so it errs where none is right: in 9 of 32 queries.
	if late[stackingRun] > 0.32 || late[voteRun] < late[stackingRun]+0.1 {
		t.Errorf("errors %v", late)
	}
}

func textsAndNumbers() dataSet {
	e := dataSet{&experiment{about: about{Pixels: 4, Models: []Trained{{Name: "a", Error: 0.5}, {Name: "b"}}}, labels: []int64{0, 1}, rows: [][]byte{[]byte("ab\x00\x00"), []byte("\xc3\xa9\x00\x00")}}, 2}
	e.answers = map[string][]int64{"a": {1, 1}, "b": {0, 1}}
	return e
}

func TestInputsOfRows(t *testing.T) {
	e := textsAndNumbers()
	text := e.withInputs([]int{1, 0}, true)
	in := selection.Tensors{Specs: text.specs, Values: text.inputs(0)}
	if got, ok := in.Named(""); !ok || got.Numeric() || string(got.Value.Data) != "é" || text.labels[0] != 1 {
		t.Errorf("text %q", got.Value.Data)
	}
	numbers := e.withInputs([]int{1, 0}, false)
	in = selection.Tensors{Specs: numbers.specs, Values: numbers.inputs(1)}
	if got, ok := in.Named(""); !ok || got.Elements() != 4 || got.Number(0) != 'a' || got.Number(3) != 0 {
		t.Errorf("numbers %v", got.Value.Data)
	}
}

// Of a set, each row is asked once; and the two best models fail in turns.
func TestSetScenarios(t *testing.T) {
	e := textsAndNumbers()
	all := e.setScenarios(setFile{Title: "it", Input: textInput}, func(n int) int { return n })
	once := all[0].stream(1)
	if got := slices.Sorted(slices.Values(once.labels)); !slices.Equal(got, []int32{0, 1}) {
		t.Errorf("labels %v", got)
	}
	s := all[1].stream(1)
	for eighth, model := range []int{1, 0, 1, 0, 1, 0, 1, 0} { // b is the best one
		n := s.queries() / 8
		wrong := s.wrong(func(q int) int32 { return s.says(q)[model] })[eighth*n : (eighth+1)*n]
		if model == 1 && errorRate(wrong) < 0.85 {
			t.Errorf("eighth %d: %v errors", eighth, errorRate(wrong))
		}
	}
	if len(s.phases) != 7 || s.queries() != setQueries {
		t.Errorf("%d queries, phases %v", s.queries(), s.phases)
	}
}

func TestLoadIndex(t *testing.T) {
	models := t.TempDir()
	folder := filepath.Join(models, "data", "learning")
	if _, err := loadIndex(models); err == nil {
		t.Error("there is no index")
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{`[{"name": "a", "input": "text", "classes": 3}, {"name": "b", "missing": "no package"}]`: 2, `[{`: -1} {
		if err := os.WriteFile(filepath.Join(folder, "sets.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		index, err := loadIndex(models)
		if (err != nil) != (want < 0) || err == nil && (len(index) != want || index[0].Classes != 3 || index[1].Missing == "") {
			t.Errorf("%s: %v, %v", text, index, err)
		}
	}
}

// A policy that needs inputs plays beside the others, and the summary has what the report shows.
func TestSetsReport(t *testing.T) {
	e := textsAndNumbers()
	file := setFile{Name: "sets-it", Title: "it", Input: textInput, Classes: 2}
	s := &Sets{Taken: results.Taken{When: time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)}, Orders: 3, Contenders: setContenders(), Routers: setRouters(textInput),
		Index:  []setFile{file, {Name: "sets-other", Title: "another", Missing: "no package"}},
		Models: map[string][]Trained{"sets-it": {{Name: "a", What: "a network", Error: 0.5, Framework: "JAX", Parameters: 10, Bytes: 2048}, {Name: "b"}}}}
	if err := s.play(t.Context(), config{}, file, e); err != nil {
		t.Fatal(err)
	}
	byUser := played("accents", personal, 2)
	s.Scenarios = append(s.Scenarios, summarized("sets-users", &byUser))
	text := s.Markdown()
	resultstest.Contains(t, text,
		"| it | 2 | a 50.0, b 0.0 |",
		"| another | – | left out: no package |",
		"| a | a network | JAX | 10 | 2 | 50.00 |",
		"## Errors: nothing changes\n\n| policy | it |",
		"## Errors: models fail and recover\n\n| policy | it, in turns |",
		"| stacking | ",
		"| linucb by the input, 32 features | ",
		"## Accents",
		"| exp4 | 12.00 ± 2.48 | 12.00 ± 2.48 | -11.00 ± 0.00, fewer |",
	)
	if s.Empty() || strings.Contains(text, "NaN") {
		t.Error(text)
	}
	if run := s.Scenarios[0].run("linucb by the input"); run == nil || run.Phases != nil {
		t.Errorf("%+v", run)
	}
	resultstest.Kept(t, s, "learning-sets")
}

func TestNetworksReport(t *testing.T) {
	models := []Trained{{Name: "large", What: "many layers", Error: 0.1, Framework: "JAX", Parameters: 2000, Bytes: 8192}, {Name: "small", What: "one layer", Error: 0.2, Framework: "scikit-learn", Parameters: 10, Bytes: 1024}}
	n := &Networks{Taken: results.Taken{When: time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)}, Ensembles: &Ensembles{Title: "images", Queries: 100, Models: models, Policies: []EnsemblePolicy{
		{Name: "exp4", Error: 0.08, Fewer: results.Interval{Value: 0.2, Low: 0.1, High: 0.3}, Groups: []Group{{Agree: 2, Share: 0.9, Error: 0.05, Confidence: 0.9}}},
		{Name: "equal weights", Error: 0.11, Fewer: results.Interval{Value: -0.1, Low: -0.2, High: 0}},
	}}}
	text := n.Markdown()
	resultstest.Contains(t, text, "images, 100 queries", "| small | one layer | scikit-learn | 10 | 1 | 20.00 |\n| large | many layers | JAX | 2000 | 8 | 10.00 |",
		"| exp4 | 8.00 | 20.0 ± 10.0 | holds |", "| equal weights | 11.00 | -10.0 ± 10.0 | **does not hold** |", "| 2 of 2 | 90.0 % | 5.0 % | 0.90 |")
	resultstest.Kept(t, n, "learning-networks")
}

func TestNetworkFunctions(t *testing.T) {
	text := networkFunctions([]string{"a", "b"})
	if strings.Count(text, "models: [a, b]") != len(ensemblePolicies) || strings.Count(text, "---") != len(ensemblePolicies)-1 {
		t.Error(text)
	}
	if (*setFile)(nil).reason() == "" || (&setFile{Missing: "no package"}).reason() != "no package" {
		t.Error("a reason is lost")
	}
}
