package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

// Sets is what -sets measures: orders of data sets of images, speech, tables and text, played to policies without a gateway, as -orders does
// with digits. It keeps intervals and no single order.
type Sets struct {
	results.Taken
	Quick      bool        `json:"quick,omitempty"`
	Orders     int         `json:"orders"`
	Seconds    float64     `json:"seconds"`
	Contenders []contender `json:"contenders"`
	Routers    []contender `json:"routers"`
	Index      []setFile   `json:"index"`
	// Models are the models of each set, by the set's file.
	Models    map[string][]Trained `json:"models"`
	Scenarios []Summary            `json:"scenarios"`
}

// Empty implements results.Report.
func (s *Sets) Empty() bool { return len(s.Scenarios) == 0 }

// setFile is a set in the trainer's sets.json.
type setFile struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Input   string `json:"input"` // numbersInput, textInput, or usersInput
	Classes int32  `json:"classes"`
	Missing string `json:"missing,omitempty"` // why it is left out
}

// The kinds of inputs: rows of numbers, rows of text filled up with zeros, and figure 10's rows by user.
const (
	numbersInput = "numbers"
	textInput    = "text"
	usersInput   = "users"
)

// Summary is a scenario without its single orders.
type Summary struct {
	Name    string         `json:"name"`
	Set     string         `json:"set"`
	Kind    string         `json:"kind"`
	What    string         `json:"what"`
	Queries int            `json:"queries"`
	Models  int            `json:"models"`
	Runs    []SummaryOfRun `json:"runs"`
}

// SummaryOfRun is an OrderRun without its single orders. Beside others, it is above 0 where it has more errors.
type SummaryOfRun struct {
	Name   string `json:"name"`
	Error  mean   `json:"error"`
	Phases []mean `json:"phases,omitempty"`
	// BesideVote and BesideBest are those of exp3 and exp4 with their defaults.
	BesideVote *mean `json:"beside_vote,omitempty"`
	BesideBest *mean `json:"beside_best,omitempty"`
	// BesideDefault is beside exp4 with its defaults. BesideExp3, of linucb, is beside exp3 with its defaults: both ask one model.
	BesideDefault mean  `json:"beside_exp4"`
	BesideExp3    *mean `json:"beside_exp3,omitempty"`
	// BesideReported is beside the reported group's model in the second half of the feedback, for users.
	BesideReported *mean `json:"second_half_beside_reported,omitempty"`
}

// mean is an interval around its middle, without its lower end, rounded: files are to be small.
type mean struct {
	Value float64 `json:"value"`
	High  float64 `json:"high"`
}

func meanOf(i results.Interval) mean {
	round := func(v float64) float64 { return math.Round(v*1e6) / 1e6 }
	return mean{round(i.Value), round(i.High)}
}

func (m mean) interval() results.Interval {
	return results.Interval{Value: m.Value, Low: 2*m.Value - m.High, High: m.High}
}

// setContenders are the contenders of -orders and, of the sweep, the settings of exp4 and exp3 around the defaults; and stacking. Stacking has
// room for 32 classes by default, which is more than a set has.
func setContenders() []contender {
	return append(slices.Clone(contenders), contender{Name: stackingRun, Policy: "stacking"},
		contender{Name: "exp4, vote 3", Policy: "exp4", Params: params{"vote": 3.0}},
		contender{Name: "exp4, floor 2", Policy: "exp4", Params: params{"floor": 2.0}},
		contender{Name: "exp3, eta 0.03", Policy: "exp3", Params: params{"eta": 0.03}},
		contender{Name: "exp3, eta 0.1", Policy: "exp3", Params: params{"eta": 0.1}})
}

const stackingRun = "stacking"

// setRouters are linucb by the input: of numbers, of text, and of figure 10.
func setRouters(input string) []contender {
	switch input {
	case usersInput:
		return routers
	case textInput:
		return []contender{{Name: "linucb by the input", Policy: "linucb"}, {Name: "linucb by the input, 32 features", Policy: "linucb", Params: params{"features": 32.0}}}
	}
	return []contender{
		{Name: "linucb by the input", Policy: "linucb", Params: params{"scale": 255.0}},
		{Name: "linucb by the input, 32 features", Policy: "linucb", Params: params{"scale": 255.0, "features": 32.0}},
	}
}

// loadIndex reads what the trainer has made.
func loadIndex(models string) (index []setFile, err error) {
	data, err := os.ReadFile(filepath.Join(models, "data", "learning", "sets.json"))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, fmt.Errorf("sets.json: %w", err)
	}
	return index, nil
}

// measureSets plays each set that is there: each row once, and, but for users, with failing models.
func measureSets(ctx context.Context, cfg config, s *Sets) error {
	var err error
	if s.Index, err = loadIndex(cfg.models); err != nil {
		return err
	}
	s.Orders, s.Contenders, s.Models = orderCount, setContenders(), map[string][]Trained{}
	s.Routers = slices.Concat(setRouters(numbersInput), setRouters(usersInput))
	if cfg.quick {
		s.Orders = quickOrderCount
	}
	began := time.Now()
	for _, file := range s.Index {
		if file.Missing != "" {
			runner.Logf("    %s is left out: %s", file.Title, file.Missing)
			continue
		}
		e, err := load(cfg.models, file.Name)
		if err != nil {
			return err
		}
		s.Models[file.Name] = e.Models
		if err := s.play(ctx, cfg, file, dataSet{e, file.Classes}); err != nil {
			return fmt.Errorf("%s: %w", file.Title, err)
		}
	}
	s.Seconds = time.Since(began).Seconds()
	return nil
}

// play plays a set's scenarios at the same time.
func (s *Sets) play(ctx context.Context, cfg config, file setFile, e dataSet) error {
	all := e.setScenarios(file, cfg.scaled)
	o := &Orders{Orders: s.Orders, Contenders: s.Contenders, Routers: setRouters(file.Input)}
	played, err := o.playAll(ctx, all)
	if err != nil {
		return err
	}
	for _, p := range played {
		s.Scenarios = append(s.Scenarios, summarized(file.Name, p))
	}
	return nil
}

// setScenarios returns the scenarios of a set.
func (e dataSet) setScenarios(file setFile, queries func(n int) int) []scenario {
	if file.Input == usersInput {
		return []scenario{{file.Title, e.Setting + fmt.Sprintf(" Each asks %d words, in an order of its own.", e.QueriesPerUser), personal, e.byUser}}
	}
	text, best := file.Input == textInput, e.byError()
	once := func(order uint64) *stream {
		rows := rand.New(rand.NewPCG(order, 7)).Perm(len(e.labels))
		return e.withInputs(rows[:queries(len(rows))], text)
	}
	n := queries(setQueries)
	inTurns := func(order uint64) *stream {
		s, draw := e.withInputs(sequence(n, len(e.labels), order), text), rand.New(rand.NewPCG(order, 10))
		for at := range 8 {
			s.garble(best[at%2], at*n/8, (at+1)*n/8, e.classes, draw)
		}
		return s
	}
	return []scenario{
		{file.Title, fmt.Sprintf("each of %d rows once", len(e.labels)), stationary, once},
		{file.Title + ", in turns", "drawn from the rows; in each eighth one of the two best models names another class nine times in ten, in turns", drifting, inTurns},
	}
}

// setQueries is the length of a stream in which models fail.
const setQueries = 10_000

// withInputs returns the rows as queries that have their input.
func (e *experiment) withInputs(rows []int, text bool) *stream {
	s := e.stream(rows)
	s.specs = []api.TensorSpec{{Name: imageInput, DType: api.Uint8, Shape: []int64{int64(e.Pixels)}}}
	if text {
		s.specs = []api.TensorSpec{{Name: textInput, DType: api.String}}
	}
	s.inputs = func(q int) []api.Value {
		row := e.rows[rows[q]]
		if text {
			row = bytes.TrimRight(row, "\x00")
		}
		return []api.Value{{Data: row}}
	}
	return s
}

// summarized leaves out the single orders.
func summarized(set string, p *Played) Summary {
	out := Summary{Name: p.Name, Set: set, Kind: p.Kind, What: p.What, Queries: p.Queries, Models: p.Models}
	beside := func(r *OrderRun, other []float64) mean {
		return meanOf(results.Average(results.Differences(r.Errors, other)))
	}
	reported := p.run(reportedRun)
	for i := range p.Runs {
		r := &p.Runs[i]
		s := SummaryOfRun{Name: r.Name, Error: meanOf(r.Error), BesideDefault: beside(r, p.run(defaultRun).Errors)}
		if r.Name == defaultRun || r.Name == "exp3" {
			vote, best := meanOf(r.BesideVote), meanOf(r.BesideBest)
			s.BesideVote, s.BesideBest = &vote, &best
		}
		if len(r.Phases) <= 3 { // failures in turns have eight
			for _, phase := range r.Phases {
				s.Phases = append(s.Phases, meanOf(phase))
			}
		}
		if strings.HasPrefix(r.Name, "linucb") {
			m := beside(r, p.run("exp3").Errors)
			s.BesideExp3 = &m
		}
		if reported != nil && len(r.PhaseErrors) > 1 {
			m := meanOf(results.Average(results.Differences(r.PhaseErrors[1], reported.PhaseErrors[1])))
			s.BesideReported = &m
		}
		out.Runs = append(out.Runs, s)
	}
	return out
}

// run returns the run of that name, or nil.
func (s *Summary) run(name string) *SummaryOfRun {
	return results.Find(s.Runs, func(r SummaryOfRun) bool { return r.Name == name })
}
