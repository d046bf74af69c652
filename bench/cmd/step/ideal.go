package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

const (
	meanLength, longestLength = 20, 100
	// A step of n sequences takes stepFixed + n·stepEach: the same numbers as in bench/models/step/model.py.
	stepFixed, stepEach = 5 * time.Millisecond, 100 * time.Microsecond
)

// lengths are geometric with mean meanLength, and cut at longestLength.
func lengths(n int, seed uint64) []int {
	random := rand.New(rand.NewPCG(seed, 0))
	all := make([]int, n)
	for i := range all {
		u := 1 - random.Float64() // in (0, 1]
		all[i] = min(1+int(math.Log(u)/math.Log(1-1.0/meanLength)), longestLength)
	}
	return all
}

func summary(lengths []int) (sequences, outputs, longest int) {
	for _, n := range lengths {
		outputs += n
	}
	return len(lengths), outputs, slices.Max(lengths)
}

func stepTime(running int) time.Duration { return stepFixed + time.Duration(running)*stepEach }

// timed is one sequence: how long after its request its first output came, and its last.
type timed struct{ first, last time.Duration }

// Run is what one run has shown, in a closed loop over all sequences, from the first request to the last answer.
type Run struct {
	Seconds        float64 `json:"seconds"`
	RequestsPerS   float64 `json:"requests_per_s"`
	OutputsPerS    float64 `json:"outputs_per_s"`
	P50Millis      float64 `json:"p50_ms"`
	P99Millis      float64 `json:"p99_ms"`
	FirstP50Millis float64 `json:"first_p50_ms"` // until the first output
	FirstP99Millis float64 `json:"first_p99_ms"`
	// CPU time for each output: of the gateway, and of the replica.
	GatewayMicros float64 `json:"gateway_cpu_us,omitempty"`
	ReplicaMicros float64 `json:"replica_cpu_us,omitempty"`
}

func summed(took time.Duration, all []timed, outputs int) Run {
	first, last := make([]float64, len(all)), make([]float64, len(all))
	for i, t := range all {
		first[i], last[i] = t.first.Seconds()*1e3, t.last.Seconds()*1e3
	}
	firsts, lasts := results.Quantiles(first), results.Quantiles(last)
	return Run{
		Seconds: took.Seconds(), RequestsPerS: float64(len(all)) / took.Seconds(), OutputsPerS: float64(outputs) / took.Seconds(),
		P50Millis: lasts(0.5), P99Millis: lasts(0.99), FirstP50Millis: firsts(0.5), FirstP99Millis: firsts(0.99),
	}
}

// loop is a closed loop of callers in virtual time: they ask for the next sequence as soon as they have an answer.
type loop struct {
	lengths []int
	now     time.Duration
	asked   []time.Duration // when sequence i was asked for; those up to len(asked) have been
	begun   int             // how many have begun; they begin in the order of their requests
	ended   []timed
}

func newLoop(lengths []int, callers int) *loop {
	return &loop{lengths: lengths, asked: make([]time.Duration, min(callers, len(lengths))), ended: make([]timed, len(lengths))}
}

// begin returns the next sequence that waits.
func (l *loop) begin() (i int, ok bool) {
	if l.begun == len(l.asked) {
		return 0, false
	}
	l.begun++
	return l.begun - 1, true
}

// end notes the end of sequence i. Its caller asks for another one, if there is one left.
func (l *loop) end(i int) {
	l.ended[i].last = l.now - l.asked[i]
	if len(l.asked) < len(l.lengths) {
		l.asked = append(l.asked, l.now)
	}
}

func (l *loop) run() Run {
	_, outputs, _ := summary(l.lengths)
	return summed(l.now, l.ended, outputs)
}

// idealStep is the run of a server that fills free places before each step, and takes no time for anything else.
func idealStep(lengths []int, callers, places int) Run {
	l := newLoop(lengths, callers)
	var running []int
	made := make([]int, len(lengths))
	for {
		for len(running) < places {
			i, ok := l.begin()
			if !ok {
				break
			}
			running = append(running, i)
		}
		if len(running) == 0 {
			return l.run()
		}
		l.now += stepTime(len(running))
		running = slices.DeleteFunc(running, func(i int) bool {
			made[i]++
			if made[i] == 1 {
				l.ended[i].first = l.now - l.asked[i]
			}
			if made[i] < lengths[i] {
				return false
			}
			l.end(i)
			return true
		})
	}
}

// idealWhole is the run of a server that answers a batch when its longest sequence has ended, begins the next one at once with what waits, and
// takes no time for anything else.
func idealWhole(lengths []int, callers, places int) Run {
	l := newLoop(lengths, callers)
	for {
		var batch []int
		for len(batch) < places {
			i, ok := l.begin()
			if !ok {
				break
			}
			batch = append(batch, i)
		}
		if len(batch) == 0 {
			return l.run()
		}
		running := len(batch)
		for step := 1; running > 0; step++ {
			l.now += stepTime(running)
			for _, i := range batch {
				if lengths[i] == step {
					running--
				}
			}
		}
		for _, i := range batch {
			l.ended[i].first = l.now - l.asked[i]
			l.end(i)
		}
	}
}
