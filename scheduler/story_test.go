package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/xebec-serving/xebec/api"
)

// TestStories runs the transcripts in testdata: an event above the dashes, the machine's decisions below. Time stands
// still unless a story says wait.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var s *story
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "new" {
				s = newStory(t, d)
				return ""
			}
			if s == nil {
				t.Fatalf("%s: a transcript must start with new", d.Pos)
			}
			return s.do(t, d)
		})
	})
}

type story struct {
	m     *Machine
	now   api.Nanos
	acts  Actions
	items map[string]*Item
	names map[*api.Query]string
	// The outstanding batches of each replica, in order.
	sent    map[ReplicaID][]sentBatch
	trained int
}

type sentBatch struct {
	id  uint64
	n   int
	at  api.Nanos
	pad int
}

func newStory(t *testing.T, d *datadriven.TestData) *story {
	s := &story{
		m:     New(storyConfig(t, d, Config{Retry: true})),
		items: map[string]*Item{}, names: map[*api.Query]string{}, sent: map[ReplicaID][]sentBatch{},
	}
	if d.HasArg("pair") { // two replicas with known profiles: the first takes 3 ms for a batch, the second 2 ms
		s.m.AddFunction(1)
		for i, took := range []api.Nanos{3e6, 2e6} {
			s.m.ReplicaReady(s.now, ReplicaID(i+1), 0)
			s.train(ReplicaID(i+1), knownSamples, 1, took, 0, 0)
		}
	}
	return s
}

func storyConfig(t *testing.T, d *datadriven.TestData, cfg Config) Config {
	for _, arg := range d.CmdArgs {
		val := ""
		if len(arg.Vals) > 0 {
			val = arg.Vals[0]
		}
		switch arg.Key {
		case "depth":
			cfg.Depth = number(t, d, val)
		case "max-queue":
			cfg.MaxQueue = number(t, d, val)
		case "max-queue-bytes":
			cfg.MaxQueueBytes = number(t, d, val)
		case "policy":
			cfg.Batching.Policy = map[string]Policy{"aimd": AIMD, "fixed": Fixed, "none": None, "quantile": Quantile}[val]
		case "max-batch":
			cfg.Batching.MaxBatch = number(t, d, val)
		case "max-batch-bytes":
			cfg.Batching.MaxBatchBytes = number(t, d, val)
		case "hold":
			cfg.Batching.HoldNanos = nanos(t, d, val)
		case "objective":
			cfg.Batching.ObjectiveNanos = nanos(t, d, val)
		case "pad":
			cfg.Batching.Pad = true
		case "shared":
			cfg.Shared = true
		case "streams":
			cfg.Streams = true
		case "no-retry":
			cfg.Retry = false
		case "hedge":
			cfg.Hedge = true
		case "pair":
		case "timeout":
			cfg.TimeoutNanos = nanos(t, d, val)
		default:
			d.Fatalf(t, "unknown setting %s", arg.Key)
		}
	}
	return cfg
}

func number(t *testing.T, d *datadriven.TestData, s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return n
}

func nanos(t *testing.T, d *datadriven.TestData, s string) int64 {
	v, err := time.ParseDuration(s)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return v.Nanoseconds()
}

// args separates bare words from key=value settings.
func args(d *datadriven.TestData) (words []string, settings map[string]string) {
	settings = map[string]string{}
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			words = append(words, a.Key)
		} else {
			settings[a.Key] = strings.Join(a.Vals, ",")
		}
	}
	return words, settings
}

func (s *story) do(t *testing.T, d *datadriven.TestData) string {
	words, set := args(d)
	dur := func(key string, byDefault time.Duration) api.Nanos {
		if v, ok := set[key]; ok {
			return api.Nanos(nanos(t, d, v))
		}
		return api.Nanos(byDefault)
	}
	num := func(key string, byDefault int) int {
		if v, ok := set[key]; ok {
			return number(t, d, v)
		}
		return byDefault
	}
	id := func() ReplicaID { return ReplicaID(number(t, d, words[0])) }
	switch d.Cmd {
	case "configure":
		s.m.Configure(s.now, storyConfig(t, d, s.m.Config()))
	case "function":
		w, _ := strconv.ParseFloat(set["weight"], 64)
		return fmt.Sprintf("function %d\n", s.m.AddFunction(w))
	case "remove-function":
		s.m.RemoveFunction(int32(number(t, d, words[0])))
	case "ready":
		s.m.ReplicaReady(s.now, id(), num("depth", 0))
		s.m.SetConcurrency(id(), num("concurrency", 1))
	case "arrive":
		for _, name := range expand(words) {
			s.arrive(name, int32(num("function", 0)), dur("slo", 20*time.Millisecond), dur("ttl", 0), num("bytes", 8))
		}
	case "wait":
		s.now += api.Nanos(nanos(t, d, words[0]))
		s.m.Advance(s.now)
	case "done":
		if len(s.sent[id()]) == 0 {
			t.Fatalf("%s: replica %d has no outstanding batch", d.Pos, id())
		}
		s.done(id(), uint64(num("batch", 0)), code(t, d, set["code"]))
	case "first":
		s.m.FirstOutput(s.now, id(), uint64(num("batch", 1)), 1e6)
	case "send-fails":
		s.m.SendFailed(s.now, id(), s.takeSent(id(), uint64(num("batch", 0))).id, api.Errorf(code(t, d, set["code"]), "failed by the transcript"))
	case "gone":
		s.gone(id(), set["begun"], s.m.ReplicaGone)
	case "crashes":
		s.gone(id(), set["begun"], s.m.ReplicaCrashed)
	case "drain":
		s.m.ReplicaDrain(s.now, id())
	case "cancel":
		for _, name := range expand(words) {
			s.m.Cancel(s.now, s.items[name])
		}
	case "close":
		s.m.Close(s.now, code(t, d, words[0]))
	case "grant":
		s.m.TurnGranted(s.now, nanos(t, d, words[0]))
	case "plan":
		s.m.SetPlan(storyPlan(t, d))
	case "train":
		return s.train(id(), num("batches", 1), num("n", 0), dur("fixed", 0), dur("each", 0), dur("pause", 0))
	case "state":
		return s.state()
	default:
		d.Fatalf(t, "unknown event %s", d.Cmd)
	}
	return s.ready()
}

// expand turns "q1-4" into q1 q2 q3 q4.
func expand(words []string) (names []string) {
	for _, w := range words {
		from, to, ok := strings.Cut(w, "-")
		prefix := strings.TrimRight(from, "0123456789")
		a, errA := strconv.Atoi(from[len(prefix):])
		b, errB := strconv.Atoi(to)
		if !ok || errA != nil || errB != nil {
			names = append(names, w)
			continue
		}
		for i := a; i <= b; i++ {
			names = append(names, fmt.Sprintf("%s%d", prefix, i))
		}
	}
	return names
}

func code(t *testing.T, d *datadriven.TestData, name string) api.Code {
	if name == "" {
		return api.OK
	}
	for c := range api.Codes {
		if c.String() == name {
			return c
		}
	}
	d.Fatalf(t, "unknown code %q", name)
	return 0
}

func (s *story) arrive(name string, function int32, slo, ttl api.Nanos, bytes int) {
	it := &Item{Query: api.Query{
		Function: function, Inputs: []api.Value{{Data: make([]byte, bytes)}},
		Arrived: s.now, Deadline: s.now + slo, Expires: s.now + max(slo, ttl),
	}}
	s.items[name], s.names[&it.Query] = it, name
	s.m.Arrive(s.now, it)
}

func (s *story) takeSent(id ReplicaID, batch uint64) sentBatch {
	list := s.sent[id]
	i := 0
	if batch != 0 {
		i = slices.IndexFunc(list, func(b sentBatch) bool { return b.id == batch })
	}
	b := list[i]
	s.sent[id] = slices.Delete(list, i, i+1)
	return b
}

func (s *story) done(id ReplicaID, batch uint64, c api.Code) {
	b := s.takeSent(id, batch)
	s.m.BatchDone(s.now, id, &api.BatchResult{ID: b.id, Code: c, EvalNanos: int64(s.now - b.at)})
}

func (s *story) gone(id ReplicaID, begun string, report func(api.Nanos, ReplicaID, func(uint64) bool)) {
	delete(s.sent, id)
	switch begun {
	case "", "all":
		report(s.now, id, nil)
	default:
		list := strings.Split(begun, ",")
		report(s.now, id, func(batch uint64) bool { return slices.Contains(list, fmt.Sprint(batch)) })
	}
}

// train makes a replica evaluate batches one after the other, each filled to its cap (or with n queries).
func (s *story) train(id ReplicaID, batches, n int, fixed, each, pause api.Nanos) string {
	var caps []string
	for range batches {
		size := n
		if size == 0 {
			size = s.m.capOf(s.m.byID[id])
		}
		for range size {
			s.trained++
			s.arrive(fmt.Sprintf("t%d", s.trained), 0, 1e12, 0, 8)
		}
		s.ready()
		s.now += fixed + each*api.Nanos(size)
		s.done(id, 0, api.OK)
		s.ready()
		s.now += pause
		caps = append(caps, fmt.Sprint(s.m.capOf(s.m.byID[id])))
	}
	return "caps " + strings.Join(caps, " ") + "\n"
}

func storyPlan(t *testing.T, d *datadriven.TestData) Plan {
	var p Plan
	for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		get := func(key string) string {
			for _, w := range f[min(2, len(f)):] {
				if k, v, _ := strings.Cut(w, "="); k == key {
					return v
				}
			}
			return ""
		}
		switch f[0] {
		case "function":
			var fp FunctionPlan
			fp.Weight, _ = strconv.ParseFloat(get("weight"), 64)
			fp.Shed, _ = strconv.ParseFloat(get("shed"), 64)
			for len(p.Functions) <= number(t, d, f[1]) {
				p.Functions = append(p.Functions, FunctionPlan{})
			}
			p.Functions[number(t, d, f[1])] = fp
		case "replica":
			rp := ReplicaPlan{ID: ReplicaID(number(t, d, f[1]))}
			rp.Cap, _ = strconv.Atoi(get("cap"))
			if v := get("hold"); v != "" {
				rp.HoldNanos = nanos(t, d, v)
			}
			if v := get("objective"); v != "" {
				rp.ObjectiveNanos = nanos(t, d, v)
			}
			for _, v := range strings.FieldsFunc(get("shares"), func(r rune) bool { return r == ',' }) {
				share, err := strconv.ParseFloat(v, 64)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				rp.Shares = append(rp.Shares, share)
			}
			p.Replicas = append(p.Replicas, rp)
		case "execution":
			p.Execution = map[string]Execution{"whole": Whole, "split": Split, "stream": Stream}[f[1]]
		default:
			d.Fatalf(t, "a plan has no setting %s", f[0])
		}
	}
	return p
}

// ready calls Ready and prints the actions.
func (s *story) ready() string {
	s.m.Ready(s.now, &s.acts)
	var b strings.Builder
	for _, a := range s.acts.Dispatches {
		verb := "send"
		if a.Hedge {
			verb = "hedge"
			s.nameTwins()
		}
		var names []string
		for _, q := range a.Batch.Queries {
			names = append(names, s.names[q])
		}
		fmt.Fprintf(&b, "%s %d#%d: %s", verb, a.Replica, a.Batch.ID, collapse(names))
		if a.Batch.Pad > 0 {
			fmt.Fprintf(&b, " +%d", a.Batch.Pad)
		}
		b.WriteByte('\n')
		s.sent[a.Replica] = append(s.sent[a.Replica], sentBatch{a.Batch.ID, len(names), s.now, a.Batch.Pad})
	}
	for _, k := range s.acts.Kills {
		fmt.Fprintf(&b, "kill %d: %s\n", k.Replica, k.Reason)
	}
	verbs := map[EndKind]string{Both: "end", AnswerOnly: "answer", ReleaseOnly: "release"}
	for i := 0; i < len(s.acts.Ends); {
		e := s.acts.Ends[i]
		var names []string
		for ; i < len(s.acts.Ends) && s.acts.Ends[i].Kind == e.Kind && s.acts.Ends[i].Code == e.Code; i++ {
			name := s.names[&s.acts.Ends[i].Item.Query]
			if e.Code == api.OK {
				name = s.names[s.acts.Ends[i].Item.Result()]
			}
			names = append(names, name)
		}
		fmt.Fprintf(&b, "%s %s: %s\n", verbs[e.Kind], e.Code, collapse(names))
	}
	for _, id := range s.acts.Drained {
		fmt.Fprintf(&b, "drained %d\n", id)
	}
	for _, e := range s.acts.Evaluated {
		fmt.Fprintf(&b, "evaluated %d: %d in %s, %s\n", e.Replica, e.Queries, time.Duration(e.EvalNanos), e.Code)
	}
	if s.acts.EndTurn > 0 {
		fmt.Fprintf(&b, "turn ends after %s\n", time.Duration(s.acts.EndTurn))
	}
	if s.acts.WantTurn {
		b.WriteString("wants a turn\n")
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// nameTwins names the twins of queries that were sent twice: 'q is the twin of q.
func (s *story) nameTwins() {
	for name, it := range s.items {
		if it.twin != nil {
			s.names[&it.twin.Query] = "'" + name
		}
	}
}

// collapse writes runs such as q1 q2 q3 as q1-3.
func collapse(names []string) string {
	split := func(s string) (string, int) {
		p := strings.TrimRight(s, "0123456789")
		n, err := strconv.Atoi(s[len(p):])
		if err != nil {
			return s, -1
		}
		return p, n
	}
	var out []string
	for i := 0; i < len(names); {
		p, n := split(names[i])
		j := i + 1
		for ; j < len(names) && n >= 0; j++ {
			if q, k := split(names[j]); q != p || k != n+j-i {
				break
			}
		}
		if j-i > 2 {
			out = append(out, fmt.Sprintf("%s-%d", names[i], n+j-i-1))
		} else {
			out = append(out, names[i:j]...)
		}
		i = j
	}
	return strings.Join(out, " ")
}

// String returns the state's name in transcripts.
func (s ReplicaState) String() string {
	return [...]string{Serving: "serving", Draining: "draining", Leaving: "leaving"}[s]
}

func (s *story) state() string {
	var snap Snapshot
	s.m.Snapshot(&snap)
	var b strings.Builder
	fmt.Fprintf(&b, "%s: queued %d, late %d, retrying %d, bytes %d, held %d", time.Duration(s.now),
		snap.Queued, snap.Late, snap.Retrying, snap.QueuedBytes, snap.Held)
	if snap.NextWake == api.Never {
		b.WriteString(", no wake\n")
	} else {
		fmt.Fprintf(&b, ", wake in %s\n", time.Duration(snap.NextWake-s.now))
	}
	if c := &snap.Counters; c.Hedged > 0 {
		fmt.Fprintf(&b, "%d sent twice, %d of them won\n", c.Hedged, c.HedgeWins)
	}
	for _, r := range snap.Replicas {
		why := ""
		if r.Isolating {
			why = " (single queries make batches fail)"
		}
		fmt.Fprintf(&b, "replica %d %s: cap %d%s, %d batches of %d queries, %d samples, %.0f µs + %.0f µs n, p99 %.1f ms\n", r.ID, r.State, r.Cap, why,
			r.Batches, r.Queries, r.Samples, r.InterceptNanos/1e3, r.SlopeNanos/1e3, float64(r.P99Nanos)/1e6)
	}
	return b.String()
}
