package learned

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/selection"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tally is a policy whose learning a test can predict: a delta does not depend on the state. Its own slot starts at 1,
// falls by loss/P with each loss, and is the candidate's weight.
type tally struct {
	name   string // "tally" if empty
	silent bool
	Unused float64 // a parameter that changes nothing
}

const slotWeight = selection.FirstOwnSlot

func (p tally) Name() string {
	if p.name != "" {
		return p.name
	}
	return "tally"
}

func (p tally) Mode() selection.Mode { return selection.One }
func (p tally) Learns() bool         { return !p.silent }
func (p tally) Slots() int           { return selection.FirstOwnSlot + 1 }

func (p tally) Init(s selection.State) {
	clear(s.V)
	for i := range s.Candidates() {
		s.Row(i)[slotWeight] = 1
	}
}

// Join writes the mean weight of the others, with no counts.
func (p tally) Join(s selection.State, i int) {
	sum := 0.0
	for k := range s.Candidates() {
		if k != i {
			sum += s.Row(k)[slotWeight]
		}
	}
	clear(s.Row(i))
	s.Row(i)[slotWeight] = sum / float64(s.Candidates()-1)
}

func (p tally) InitContext(global, s selection.State) {
	clear(s.V)
	for i := range s.Candidates() {
		s.Row(i)[slotWeight] = global.Row(i)[slotWeight]
	}
}

// Select asks the heaviest candidate.
func (p tally) Select(q *selection.Query, out *selection.Selection) {
	best := q.Allowed.First()
	for t := q.Allowed; t != 0; t &= t - 1 {
		if i := t.First(); q.State.Row(i)[slotWeight] > q.State.Row(best)[slotWeight] {
			best = i
		}
	}
	out.Ask = selection.Set(0).With(best)
	out.P[best] = 1
}

func (p tally) Shares(s selection.State, allowed selection.Set, dst []float64) {
	sum := 0.0
	for i := range s.Candidates() {
		sum += s.Row(i)[slotWeight]
	}
	for i := range s.Candidates() {
		dst[i] = s.Row(i)[slotWeight] / sum
	}
}

func (p tally) Gains(s selection.State, dst []float64) {
	for i := range s.Candidates() {
		dst[i] = s.Row(i)[slotWeight]
	}
}

func (p tally) Combine(c *selection.Combination) {
	c.Winner, c.Confidence = -1, 0
	for _, a := range c.Answers {
		if c.Winner < 0 || c.State.Row(a.Candidate)[slotWeight] > c.State.Row(c.Winner)[slotWeight] {
			c.Winner = a.Candidate
		}
	}
}

func (p tally) Observe(f *selection.Feedback) {
	d := selection.State{Slots: f.State.Slots, V: f.Delta}
	for t := f.Selected; t != 0; t &= t - 1 {
		i := t.First()
		if i >= d.Candidates() || math.IsNaN(f.Losses[i]) {
			continue
		}
		row := d.Row(i)
		row[selection.SlotCount]++
		row[selection.SlotLoss] += f.Losses[i]
		row[slotWeight] -= f.Losses[i] / f.P[i]
	}
}

var errAway = errors.New("the store is away")

// fakeServer is a store that several gateways share, as specified by state.Store.
type fakeServer struct {
	mu     sync.Mutex
	states map[state.Key]map[string]float64
	bases  map[state.Key]map[string]float64 // initial values of fields
	seqs   map[*fakeStore]map[state.Key]uint64
}

func newFakeServer() *fakeServer {
	return &fakeServer{
		states: map[state.Key]map[string]float64{}, bases: map[state.Key]map[string]float64{},
		seqs: map[*fakeStore]map[state.Key]uint64{},
	}
}

// fakeStore is one gateway's connection, with injected faults.
type fakeStore struct {
	*fakeServer
	shared bool
	away   bool
	// loseReply applies the next call and then fails it; applyHalf applies only its first half and then fails it.
	loseReply, applyHalf bool
	refuse               func(state.Key) bool // permanently
	gate                 chan struct{}        // each call receives from it first; nil: no waiting
	merges, loads        int
	sent                 int // fields in all merges
	forgotten            []string
}

func (s *fakeServer) connect() *fakeStore {
	c := &fakeStore{fakeServer: s, shared: true}
	s.mu.Lock()
	s.seqs[c] = map[state.Key]uint64{}
	s.mu.Unlock()
	return c
}

func (c *fakeStore) wait(ctx context.Context) error {
	c.mu.Lock()
	gate := c.gate
	c.mu.Unlock()
	if gate == nil {
		return nil
	}
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *fakeStore) set(change func(c *fakeStore)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

func (c *fakeStore) Merge(ctx context.Context, updates []state.Update) ([][]state.Total, error) {
	if err := c.wait(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.merges++
	if c.away {
		return nil, errAway
	}
	half := c.applyHalf
	c.applyHalf = false
	var answers [][]state.Total
	var refused []state.Refusal
	for i, u := range updates {
		if half && i == len(updates)/2 {
			return nil, errAway
		}
		if c.refuse != nil && c.refuse(u.Key) {
			refused = append(refused, state.Refusal{Index: i, Key: u.Key, Reason: "something else lies there"})
			answers = append(answers, nil)
			continue
		}
		c.apply(u)
		answers = append(answers, totals(c.states[u.Key]))
	}
	if c.loseReply || half {
		c.loseReply = false
		return nil, errAway
	}
	return answers, refusal(refused)
}

func refusal(refused []state.Refusal) error {
	if len(refused) == 0 {
		return nil
	}
	return &state.RefusedError{Refused: refused}
}

func (c *fakeStore) apply(u state.Update) {
	if c.seqs[c][u.Key] >= u.Seq {
		return
	}
	c.seqs[c][u.Key] = u.Seq
	if c.states[u.Key] == nil {
		c.states[u.Key], c.bases[u.Key] = map[string]float64{}, map[string]float64{}
	}
	for _, f := range u.Fields {
		c.sent++
		if _, ok := c.states[u.Key][f.Name]; !ok {
			c.states[u.Key][f.Name], c.bases[u.Key][f.Name] = f.Base, f.Base
		}
		c.states[u.Key][f.Name] += f.Delta
	}
}

func totals(fields map[string]float64) []state.Total {
	var out []state.Total
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		out = append(out, state.Total{Name: name, Value: fields[name]})
	}
	return out
}

func (c *fakeStore) Load(ctx context.Context, asked []state.Key) ([][]state.Total, error) {
	if err := c.wait(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loads++
	if c.away {
		return nil, errAway
	}
	var answers [][]state.Total
	var refused []state.Refusal
	for i, k := range asked {
		if c.refuse != nil && c.refuse(k) {
			refused = append(refused, state.Refusal{Index: i, Key: k, Reason: "something else lies there"})
			answers = append(answers, nil)
			continue
		}
		answers = append(answers, totals(c.states[k]))
	}
	return answers, refusal(refused)
}

func (c *fakeStore) Forget(ctx context.Context, function string) error {
	if err := c.wait(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away {
		return errAway
	}
	c.forgotten = append(c.forgotten, function)
	maps.DeleteFunc(c.states, func(k state.Key, _ map[string]float64) bool { return k.Function == function })
	return nil
}

func (c *fakeStore) EachContext(ctx context.Context, function, policy string, do func([]string) error) error {
	if err := c.wait(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	var contexts []string
	for k := range c.states {
		if k.Function == function && k.Policy == policy && k.Context != "" {
			contexts = append(contexts, k.Context)
		}
	}
	away := c.away
	c.mu.Unlock()
	if away {
		return errAway
	}
	return do(contexts)
}

func (c *fakeStore) Shared() bool { return c.shared }
func (c *fakeStore) Name() string { return "the fake store" }
func (c *fakeStore) Close() error { return nil }

// field returns the server's number; NaN if there is none.
func (s *fakeServer) field(k state.Key, name string) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.states[k][name]; ok {
		return v
	}
	return math.NaN()
}

// put writes a row of the tally policy.
func (s *fakeServer) put(k state.Key, ref string, row ...float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.states[k] == nil {
		s.states[k], s.bases[k] = map[string]float64{}, map[string]float64{}
	}
	for i, v := range row {
		s.states[k][ref+"/"+string(rune('0'+i))] = v
	}
}

// manualTable is a table whose writer is stepped by the test, with the test's clock.
type manualTable struct {
	*Table
	at time.Time
}

func newManualTable(cfg Config) *manualTable {
	return &manualTable{newTable(cfg), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func (t *manualTable) clock() time.Time { return t.at }

// advance moves the clock forward by d and steps the writer at each time at which it would wake.
func (t *manualTable) advance(d time.Duration) {
	for end := t.at.Add(d); ; {
		wake := t.step(t.clock)
		select {
		case <-t.writer.kick:
			continue
		default:
		}
		if wake.IsZero() || wake.After(end) {
			t.at = end
			return
		}
		t.at = wake
	}
}

// loss gives f feedback with a loss of candidate i.
func loss(f *Function, context string, i int, loss float64) {
	n := len(f.Candidates())
	fb := selection.Feedback{Selected: selection.Set(0).With(i), P: make([]float64, n), Losses: make([]float64, n)}
	for k := range fb.Losses {
		fb.Losses[k], fb.P[k] = math.NaN(), 1
	}
	fb.Losses[i] = loss
	f.Observe([]byte(context), &fb)
}

// peek returns a state as policies see it, without marking it as used.
func peek(f *Function, context string) []float64 {
	st := f.states
	if context == "" {
		st.global.mu.RLock()
		defer st.global.mu.RUnlock()
		return slices.Clone(st.global.value)
	}
	hash := st.table.hash([]byte(context))
	s := st.shardOf(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.find([]byte(context), hash); i != none {
		return slices.Clone(s.value(i))
	}
	return nil
}

// weights returns the policy's own slots of a state.
func weights(f *Function, context string) []float64 {
	v := peek(f, context)
	if v == nil {
		return nil
	}
	s := f.states.layout.state(v)
	out := make([]float64, s.Candidates())
	for i := range out {
		out[i] = s.Row(i)[slotWeight]
	}
	return out
}

// ask calls Select once, which brings the context into memory.
func ask(f *Function, context string) selection.Set {
	q := selection.Query{Allowed: selection.All(len(f.Candidates()))}
	var out selection.Selection
	f.Select([]byte(context), &q, &out)
	return out.Ask
}

func near(t testing.TB, what string, got []float64, want ...float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
	for i := range got {
		if !(math.Abs(got[i]-want[i]) <= 1e-9) {
			t.Fatalf("%s: got %v, want %v", what, got, want)
		}
	}
}
