package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/xebec-serving/xebec/api"
)

// scenario is a data set, or a way in which models err. Each order of it is a stream.
type scenario struct {
	name, what string
	kind       string
	stream     func(order uint64) *stream
}

// The kinds of scenarios.
const (
	stationary = "nothing changes"
	drifting   = "models fail and recover"
	personal   = "by user"
)

// driftQueries is the length of the streams that are drawn: that of the paper's figure 8.
const driftQueries = 20_000

// dataSet is an experiment of the trainer with its number of classes.
type dataSet struct {
	*experiment
	classes int32
}

// scenarios loads the data sets and returns all scenarios. queries returns how long a stream is in place of one of n queries.
func scenarios(models string, queries func(n int) int) ([]scenario, error) {
	sets := map[string]dataSet{}
	for name, classes := range map[string]int32{"figure7-digits": 10, "figure7-mnist": 10, "orders-letter": 26, "orders-satimage": 6, "orders-penbased": 10, "orders-magic": 2, "figure8": 10, "figure9": 10, "cache": 10, "figure10": 10} {
		e, err := load(models, name)
		if err != nil {
			return nil, err
		}
		sets[name] = dataSet{e, classes}
	}
	n := queries(driftQueries)
	held := func(name, set, what string) scenario {
		e := sets[set]
		return scenario{name, fmt.Sprintf("%s; each of %d rows once", what, len(e.labels)), stationary, func(order uint64) *stream {
			rows := rand.New(rand.NewPCG(order, 7)).Perm(len(e.labels))
			return e.stream(rows[:queries(len(rows))])
		}}
	}
	failing := func(name, set string) scenario {
		return scenario{name, "drawn from the rows; the best model answers nine in ten wrongly in the second quarter, as in the paper's figure 8", drifting, func(order uint64) *stream {
			s := sets[set].drawn(n, order)
			s.degrade(sets[set].byError()[0], n/4, n/2, sets[set].classes, sourceOf(order))
			return s
		}}
	}
	inTurns := func(name, set string) scenario {
		return scenario{name, "drawn from the rows; in each eighth one of the two best models answers nine in ten wrongly, in turns", drifting, func(order uint64) *stream {
			s, draw := sets[set].drawn(n, order), rand.New(rand.NewPCG(order, 10))
			for at := range 8 {
				s.degrade(sets[set].byError()[at%2], at*n/8, (at+1)*n/8, sets[set].classes, draw)
			}
			return s
		}}
	}
	rates := []float64{0.1, 0.15, 0.2, 0.25, 0.3}
	failed := []float64{0.9, 0.15, 0.2, 0.25, 0.3}
	fails := func(bad, good []float64) func(int) []float64 {
		return func(query int) []float64 {
			if query >= n/4 && query < n/2 {
				return bad
			}
			return good
		}
	}
	always := func(rates ...float64) func(int) []float64 { return func(int) []float64 { return rates } }
	drawn := func(name, what, kind string, shared float64, rates func(int) []float64) scenario {
		return scenario{name, "simulated: " + what, kind, func(order uint64) *stream { return simulated(n, shared, rates, order) }}
	}
	return []scenario{
		held("digits", "figure7-digits", "scikit-learn's digits, five kinds of models"),
		held("MNIST", "figure7-mnist", "MNIST, five kinds of models"),
		held("letters", "orders-letter", "UCI's letters, five kinds of models"),
		held("satellite", "orders-satimage", "UCI's satellite pictures, five kinds of models"),
		held("pens", "orders-penbased", "UCI's pen strokes, five kinds of models"),
		held("gamma", "orders-magic", "UCI's gamma telescope, two classes, five kinds of models"),
		held("forests", "figure9", "MNIST, sixteen forests of ten trees"),
		held("same data", "cache", "MNIST, four models that have learned from the same images"),
		drawn("equal", "five models with errors of 20 %, independent", stationary, 0, always(0.2, 0.2, 0.2, 0.2, 0.2)),
		drawn("equal, half shared", "five models with errors of 20 %, half of them the same", stationary, 0.5, always(0.2, 0.2, 0.2, 0.2, 0.2)),
		drawn("one good, half shared", "errors of 40, 40, 10, 40 and 40 %, half of them nested: what a good model gets wrong, every worse one does", stationary, 0.5, always(0.4, 0.4, 0.1, 0.4, 0.4)),
		drawn("nested", "errors of 10 to 30 %, all nested: no vote is better than the best model", stationary, 1, always(rates...)),
		failing("figure 8", "figure8"),
		inTurns("figure 8, in turns", "figure8"),
		inTurns("MNIST, in turns", "figure7-mnist"),
		inTurns("letters, in turns", "orders-letter"),
		drawn("independent, one fails", "errors of 10 to 30 %, independent; the best one has 90 % in the second quarter", drifting, 0, fails(failed, rates)),
		drawn("half shared, one fails", "errors of 10 to 30 %, half of them nested; the best one has 90 % in the second quarter", drifting, 0.5, fails(failed, rates)),
		drawn("two, one fails", "errors of 10 and 15 %, a third of them nested; the better one has 90 % in the second quarter", drifting, 0.3, fails([]float64{0.9, 0.15}, []float64{0.1, 0.15})),
		{"figure 10", sets["figure10"].Setting + " Each asks 60 images, in an order of its own.", personal, sets["figure10"].byUser},
	}, nil
}

// stream returns the rows as queries.
func (e *experiment) stream(rows []int) *stream {
	s := &stream{models: len(e.Models)}
	for _, row := range rows {
		for _, m := range e.Models {
			s.answers = append(s.answers, int32(e.answers[m.Name][row]))
		}
		s.labels = append(s.labels, int32(e.labels[row]))
	}
	return s
}

// drawn returns rows of the data set, drawn with replacement.
func (e *experiment) drawn(queries int, order uint64) *stream {
	return e.stream(sequence(queries, len(e.labels), order))
}

// The inputs of figure 10.
const (
	imageInput = "pixels"
	groupInput = "group"
)

// byUser returns the queries of figure 10: users in turn, each user's images in an order of its own. The last model, which is for all users, is
// no candidate. The inputs are the image, and the group that the user reports as one number of 1 among zeros.
func (e dataSet) byUser(order uint64) *stream {
	draw := rand.New(rand.NewPCG(order, 12))
	images := make([][]int, len(e.Users))
	for u := range images {
		images[u] = draw.Perm(e.QueriesPerUser)
	}
	s := &stream{models: len(e.Models) - 1, phases: []int{len(e.labels) / 2}}
	names := e.names()
	groups := make([]api.Value, s.models)
	for g := range groups {
		one := make([]float32, s.models)
		one[g] = 1
		groups[g] = api.Numbers(one...)
	}
	var rows []int
	s.specs = []api.TensorSpec{{Name: imageInput, DType: api.Uint8, Shape: []int64{int64(e.Pixels)}}, {Name: groupInput, DType: api.Float32, Shape: []int64{int64(s.models)}}}
	s.inputs = func(q int) []api.Value {
		return []api.Value{{Data: e.rows[rows[q]]}, groups[e.Users[s.users[q]].Group]}
	}
	for t := range e.QueriesPerUser {
		for u := range e.Users {
			row := u*e.QueriesPerUser + images[u][t]
			for _, name := range names[:s.models] {
				s.answers = append(s.answers, int32(e.answers[name][row]))
			}
			s.labels = append(s.labels, int32(e.labels[row]))
			s.users = append(s.users, int32(u))
			rows = append(rows, row)
			s.reported = append(s.reported, s.answers[len(s.answers)-s.models+e.Users[u].Group])
			s.forAll = append(s.forAll, int32(e.answers[names[s.models]][row]))
		}
	}
	return s
}

// sourceOf returns random numbers that depend on the order.
func sourceOf(order uint64) *rand.Rand { return rand.New(rand.NewPCG(order, 9)) }

// spoiled is the part of its answers that a degraded model gets wrong.
const spoiled = 0.9

// degrade makes a model name the next class in nine of ten answers, from one query to another.
func (s *stream) degrade(model, from, until int, classes int32, draw *rand.Rand) {
	s.spoil(model, from, until, draw, func(answer int32) int32 { return (answer + 1) % classes })
}

// garble makes a model name any other class in nine of ten answers. Nothing can be learned from these, of two classes excepted.
func (s *stream) garble(model, from, until int, classes int32, draw *rand.Rand) {
	s.spoil(model, from, until, draw, func(answer int32) int32 { return (answer + 1 + draw.Int32N(classes-1)) % classes })
}

// spoil changes nine of ten answers of a model, from one query to another.
func (s *stream) spoil(model, from, until int, draw *rand.Rand, other func(answer int32) int32) {
	for q := from; q < until; q++ {
		if draw.Float64() < spoiled {
			answer := &s.says(q)[model]
			*answer = other(*answer)
		}
	}
	for _, at := range []int{from, until} {
		if at > 0 && at < s.queries() && !slices.Contains(s.phases, at) {
			s.phases = append(s.phases, at)
		}
	}
	slices.Sort(s.phases)
}

// byError returns the experiment's models, the best first.
func (e *experiment) byError() []int {
	out := make([]int, len(e.Models))
	for i := range out {
		out[i] = i
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(e.Models[a].Error, e.Models[b].Error) })
	return out
}

// simulated draws answers of ten classes: each model errs at its rate, which may depend on the query. In the part shared of the queries, the
// errors are nested: what a good model gets wrong, every worse one gets wrong in the same way.
func simulated(queries int, shared float64, rates func(query int) []float64, order uint64) *stream {
	const classes = 10
	draw := rand.New(rand.NewPCG(order, 11))
	s := &stream{models: len(rates(0)), labels: make([]int32, queries)}
	for q := range s.labels {
		nested, hard, wrong := draw.Float64() < shared, draw.Float64(), 1+draw.Int32N(classes-1)
		for _, rate := range rates(q) {
			u, class := draw.Float64(), 1+draw.Int32N(classes-1)
			if nested {
				u, class = hard, wrong
			}
			if u >= rate {
				class = 0
			}
			s.answers = append(s.answers, class)
		}
		if q > 0 && !slices.Equal(rates(q), rates(q-1)) {
			s.phases = append(s.phases, q)
		}
	}
	return s
}
