package server

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/registry"
)

// samples are what a process has answered, by endpoint.
type samples map[string]obs.Sample

const (
	// maxNamed bounds the endpoints that a canary reports by name: those with most answers. The others are one.
	maxNamed = 256 //xebec:limit functions and models that a canary compares one by one
	// others is the name of all endpoints together that have too few answers.
	others = "the other functions"
	// minNamed is how many answers of the canary an endpoint must have to be compared by itself, and minAnswers how many the canary must
	// have at the end.
	minNamed   = 50
	minAnswers = 50 //xebec:limit answers of a canary before it can take over
	// minWindow is how many answers of each process a window has in which 99th percentiles are compared: with fewer the percentile is the
	// slowest answer.
	minWindow = 100 //xebec:limit answers in a window in which a canary's 99th percentile is compared
	// minWindows is how many windows a verdict needs. If both processes were alike, all of five would be worse once in 32 times at most.
	minWindows = 5
	// worseWindows is the chance, if a window were worse half of the time, below which so many worse windows are no accident.
	worseWindows = 1.0 / 32
	// slower and slowerBySeconds say when a window is worse: the canary's 99th percentile is more than half as long again as the old
	// process's (as for roll-outs), and more than 5 ms longer. That is what a scheduler's pause costs on a busy machine.
	slower          = 1 + api.DefaultMaxP99Increase
	slowerBySeconds = 0.005
)

// trial compares a new process with the old one. It is arithmetic on samples: it reads no clock and no counter.
//
// # The rule
//
// Each endpoint with at least 50 answers of the canary is compared by itself, because a connection may ask for one function only, and
// so the two processes may answer different mixtures. The rest is compared together.
//
// Failed answers are judged at each look, as those of a roll-out: the canary is worse when its rate of failures is, with certainty
// (for each endpoint at most one wrong verdict in a hundred canaries), more than 2 percentage points above the old one's. [registry.Judge] has the source.
//
// Latencies are judged at the end, by the sign test (Dixon and Mood, Journal of the American Statistical Association 41, 1946): the time
// is cut into windows with at least 100 answers of each process, and in each one the 99th percentiles are compared. A pause of the
// machine spoils one window, however long it is, where it would spoil a percentile of all answers. The first window of an endpoint does
// not count, as new replicas are slow at first. The canary is worse if so many windows of at least five are worse as chance gives in
// less than one of 32 trials: 5 of 5, 9 of 10, 15 of 20. Fewer windows prove nothing.
type trial struct {
	began    samples // of the old process, when the canary began
	old, new samples // the newest, since the canary began
	windows  map[string]*windows
}

// windows are those of an endpoint.
type windows struct {
	old, new obs.Sample // at the end of the last one
	warm     bool       // the first one is over
	n, worse int
	ratios   []float64 // of the percentiles, at most maxRatios
}

// maxRatios bounds the windows that are remembered for the message: more than a trial of a day has at one a second.
const maxRatios = 100_000

func newTrial(began samples) *trial { return &trial{began: began, windows: map[string]*windows{}} }

// look takes what both processes have answered by now. The canary's answers count from its start.
func (t *trial) look(old, new samples) {
	t.new, t.old = new, samples{}
	for name, s := range old {
		t.old[name] = s.Since(t.began[name])
	}
	for name, n := range new {
		o, found := t.old[name]
		if !found || name == others {
			continue
		}
		w := t.windows[name]
		if w == nil {
			w = &windows{}
			t.windows[name] = w
		}
		w.look(o, n)
	}
}

// look closes a window if both processes have enough answers in it.
func (w *windows) look(old, new obs.Sample) {
	o, n := old.Since(w.old), new.Since(w.new)
	if o.Timed() < minWindow || n.Timed() < minWindow {
		return
	}
	w.old, w.new = old, new
	if !w.warm {
		w.warm = true
		return
	}
	p, q := o.Quantile(0.99), n.Quantile(0.99)
	w.n++
	if q > p*slower && q > p+slowerBySeconds {
		w.worse++
	}
	if len(w.ratios) < maxRatios {
		w.ratios = append(w.ratios, q/p)
	}
}

// answers is what the canary has answered.
func (t *trial) answers() (all obs.Sample) {
	for _, s := range t.new {
		all.Add(s)
	}
	return all
}

// pair are the answers of one endpoint.
type pair struct {
	name     string
	old, new obs.Sample
}

// pairs are the endpoints to be compared, those with most answers first. The last one may be all others.
func (t *trial) pairs() []pair {
	var list []pair
	rest := pair{name: others}
	for name, s := range t.new {
		if name != others && s.Answers >= minNamed {
			list = append(list, pair{name, t.old[name], s})
		} else {
			rest.new.Add(s)
		}
	}
	slices.SortFunc(list, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.new.Answers, a.new.Answers), cmp.Compare(a.name, b.name))
	})
	for name, s := range t.old {
		if !slices.ContainsFunc(list, func(p pair) bool { return p.name == name }) {
			rest.old.Add(s)
		}
	}
	if rest.new.Answers > 0 {
		list = append(list, rest)
	}
	return list
}

// failing says which endpoint fails more often in the canary; empty: none.
func (t *trial) failing() string {
	for _, p := range t.pairs() {
		verdict, why := registry.Judge(api.GuardSpec{}, registry.Arm{Queries: p.old.Answers, Failed: p.old.Failed}, registry.Arm{Queries: p.new.Answers, Failed: p.new.Failed})
		if verdict == registry.Retreat {
			return p.name + ": " + why
		}
	}
	return ""
}

// verdict is whether the canary is not worse, at the end of its time, and a sentence with the numbers.
func (t *trial) verdict() (good bool, why string) {
	all := t.answers()
	if all.Answers < minAnswers {
		return false, fmt.Sprintf("it has answered %d requests, and at least %d are needed to judge it (connections that clients opened before the trial are not in its share): give it more time (--canary-time) or a larger share", all.Answers, minAnswers)
	}
	if why := t.failing(); why != "" {
		return false, why
	}
	var slow []string
	timed, judged := 0, 0
	for _, p := range t.pairs() {
		w := t.windows[p.name]
		if w == nil || w.n < minWindows {
			continue
		}
		timed, judged = timed+w.n, judged+1
		if chance(w.n, w.worse) <= worseWindows {
			slow = append(slow, fmt.Sprintf("%s: the 99th percentile was worse in %d of %d windows, at the median %.2g times the old process's, allowed %.2g times and %.0f ms more",
				p.name, w.worse, w.n, median(w.ratios), slower, slowerBySeconds*1e3))
		}
	}
	if len(slow) > 0 {
		return false, slow[0]
	}
	var before obs.Sample
	for _, s := range t.old {
		before.Add(s)
	}
	why = fmt.Sprintf("%d of %d answers failed, of the old process %d of %d", all.Failed, all.Answers, before.Failed, before.Answers)
	if judged == 0 {
		return true, why + "; too few answers to compare 99th percentiles"
	}
	return true, fmt.Sprintf("%s; the 99th percentile is not worse over %d windows", why, timed)
}

// chance is the probability of at least so many heads in n throws of a coin.
func chance(n, heads int) float64 {
	sum := 0.0
	for k := heads; k <= n; k++ {
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(k + 1))
		c, _ := math.Lgamma(float64(n - k + 1))
		sum += math.Exp(a - b - c - float64(n)*math.Ln2)
	}
	return sum
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(x))[len(x)/2]
}

// named keeps the endpoints with most answers, and adds up the others.
func (s samples) named(most int) samples {
	if len(s) <= most {
		return s
	}
	names := make([]string, 0, len(s))
	for name := range s {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(s[b].Answers, s[a].Answers), cmp.Compare(a, b)) })
	kept := samples{}
	var rest obs.Sample
	for i, name := range names {
		if i < most {
			kept[name] = s[name]
		} else {
			rest.Add(s[name])
		}
	}
	kept[others] = rest
	return kept
}
