package learned

import (
	"context"
	"encoding/binary"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/internal/state/redistest"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// journal is a policy whose value counts, for each candidate, the labels that it was right about. With merges the counts
// of several gateways are added.
type journal struct {
	tally
	merges bool
	Salt   byte // a parameter that the encoding depends on
}

func (p journal) Name() string { return "journal" }

func (p journal) NewValue(candidates int) selection.Value {
	c := counts{n: make([]uint64, candidates), salt: p.Salt}
	if p.merges {
		return &merging{c}
	}
	return &c
}

func (p journal) Observe(f *selection.Feedback) {
	p.tally.Observe(f)
	c := countsOf(f.Value)
	if c == nil {
		return
	}
	for i, l := range f.Losses {
		if l == 0 {
			c.n[i]++
		}
	}
}

func countsOf(v selection.Value) *counts {
	switch v := v.(type) {
	case *counts:
		return v
	case *merging:
		return &v.counts
	}
	return nil
}

type counts struct {
	n    []uint64
	salt byte
}

func (c *counts) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, c.salt)
	for _, n := range c.n {
		b = binary.AppendUvarint(b, n)
	}
	return b, nil
}

func (c *counts) UnmarshalBinary(b []byte) error {
	if len(b) < 1 || b[0] != c.salt {
		return errors.New("another salt")
	}
	next, b := make([]uint64, len(c.n)), b[1:]
	for i := range next {
		x, n := binary.Uvarint(b)
		if n <= 0 {
			return errors.New("it is too short")
		}
		next[i], b = x, b[n:]
	}
	c.n = next
	return nil
}

func (c *counts) Adopt(old selection.Value, from []int) {
	for i, at := range from {
		if c.n[i] = 0; at >= 0 {
			c.n[i] = countsOf(old).n[at]
		}
	}
}

type merging struct{ counts }

func (m *merging) Merge(base, theirs selection.Value) {
	for i := range m.n {
		m.n[i] += countsOf(theirs).n[i] - countsOf(base).n[i]
	}
}

// right gives feedback that candidate i was right.
func right(f *Function, i, times int) {
	for range times {
		loss(f, "", i, 0)
	}
}

func counted(f *Function) []float64 {
	dst := make([]float64, len(f.Candidates()))
	q := selection.Query{Allowed: selection.All(len(dst))}
	f.Select(nil, &q, new(selection.Selection)) // so that it is in use
	v := f.states.value
	v.mu.RLock()
	defer v.mu.RUnlock()
	for i, n := range countsOf(v.now).n {
		dst[i] = float64(n)
	}
	return dst
}

func wantCounts(t *testing.T, f *Function, want ...float64) {
	t.Helper()
	if got := counted(f); !slices.Equal(got, want) {
		t.Fatalf("the value is %v, want %v", got, want)
	}
}

func openStore(t *testing.T, where string) state.Backend {
	t.Helper()
	s, err := state.Open(where)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func openTable(t *testing.T, s state.Store) *Table {
	table := newTable(Config{Store: s, Flush: time.Millisecond, Refresh: time.Millisecond})
	table.writer.minBackoff, table.writer.maxBackoff = time.Millisecond, 5*time.Millisecond
	go table.run()
	return table
}

// loadedValue waits until the function's value was read.
func loadedValue(t *testing.T, f *Function) {
	t.Helper()
	until(t, "the value was read", func() bool {
		v := f.states.value
		v.mu.RLock()
		defer v.mu.RUnlock()
		return v.loaded
	})
}

// TestValueWithoutAStore: a value is kept in memory, follows its candidates, and is inherited by a new version.
func TestValueWithoutAStore(t *testing.T) {
	table := New(Config{})
	f := table.Declare("f", journal{}, []string{"a@1", "b"})
	right(f, 0, 3)
	right(f, 1, 1)
	wantCounts(t, f, 3, 1)
	next := table.Declare("f", journal{}, []string{"b", "c", "a@2"})
	wantCounts(t, next, 1, 0, 3)
	right(f, 1, 1) // feedback for a query that started before
	wantCounts(t, next, 2, 0, 3)
	next = table.Declare("f", journal{Salt: 1}, []string{"b", "c", "a@2"})
	wantCounts(t, next, 0, 0, 0) // the value cannot be read with these parameters
	right(next, 0, 1)
	table.Declare("f", tally{}, []string{"b"})
	wantCounts(t, table.Declare("f", journal{}, []string{"b"}), 0)
	f = table.Declare("f", journal{}, []string{"b"})
	loss(f, "ann", 0, 0) // a context has rows of its own, and no value: the function's learns once
	wantCounts(t, f, 1)
}

// TestValueIsRestored: a restart keeps the value, in a file and in Redis, whether it merges or not, and another set of candidates is
// adopted from what the store has.
func TestValueIsRestored(t *testing.T) {
	for _, merges := range []bool{true, false} {
		for _, where := range []string{"redis", "file"} {
			t.Run(where, func(t *testing.T) {
				place := filepath.Join(t.TempDir(), "state.db")
				if where == "redis" {
					place = redistest.Start(t, redistest.Config{}).URL()
				}
				restart := func(refs ...string) (*Function, func()) {
					s := openStore(t, place)
					table := openTable(t, s)
					f := table.Declare("f", journal{merges: merges}, refs)
					loadedValue(t, f)
					return f, func() {
						closeTable(t, table)
						if err := s.Close(); err != nil {
							t.Fatal(err)
						}
					}
				}
				f, end := restart("a", "b")
				right(f, 0, 5)
				right(f, 1, 2)
				end()
				f, end = restart("a", "b")
				wantCounts(t, f, 5, 2)
				right(f, 0, 1)
				end()
				f, end = restart("b", "x", "a")
				wantCounts(t, f, 2, 0, 6)
				f.states.table.Forget("f")
				end()
				f, end = restart("b", "x", "a")
				wantCounts(t, f, 0, 0, 0)
				end()
			})
		}
	}
}

// TestGatewaysMergeAValue: two gateways learn at once, and both end with the sum.
func TestGatewaysMergeAValue(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	var fs [2]*Function
	var tables [2]*Table
	for i := range tables {
		tables[i] = openTable(t, openStore(t, server.URL()))
		fs[i] = tables[i].Declare("f", journal{merges: true}, []string{"a", "b"})
	}
	for range 300 {
		right(fs[0], 0, 1)
		right(fs[1], 0, 1)
		right(fs[1], 1, 1)
	}
	for _, f := range fs {
		until(t, "both have the sum", func() bool { return slices.Equal(counted(f), []float64{600, 300}) })
	}
	closeTable(t, tables[0])
	right(fs[1], 1, 7)
	closeTable(t, tables[1])
	table := openTable(t, openStore(t, server.URL()))
	f := table.Declare("f", journal{merges: true}, []string{"a", "b"})
	loadedValue(t, f)
	wantCounts(t, f, 600, 307)
	closeTable(t, table)
}

// TestOneGatewayLearns: without a merge the gateway with the lease learns, the other one follows, and takes over when the first one has
// gone. What a gateway learns that has lost its lease is given up.
func TestOneGatewayLearns(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	stores := [2]state.Backend{openStore(t, server.URL()), openStore(t, server.URL())}
	a := openTable(t, stores[0])
	fa := a.Declare("f", journal{}, []string{"a", "b"})
	loadedValue(t, fa)
	b := openTable(t, stores[1])
	fb := b.Declare("f", journal{}, []string{"a", "b"})
	loadedValue(t, fb)
	right(fa, 0, 4)
	right(fb, 1, 9)
	until(t, "the other one follows", func() bool { return slices.Equal(counted(fb), []float64{4, 0}) })
	if n := b.Stats().Elsewhere; n != 9 {
		t.Errorf("%d feedbacks are counted as learned elsewhere, want 9", n)
	}
	closeTable(t, a)
	until(t, "the other one has the lease", func() bool { right(fb, 1, 1); return counted(fb)[1] > 0 })
	closeTable(t, b)
}

// TestAFencedGateway: a gateway that was stopped for longer than its lease does not overwrite what its successor has saved.
func TestAFencedGateway(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	stores := [2]state.Backend{openStore(t, server.URL()), openStore(t, server.URL())}
	var tables [2]*Table
	var fs [2]*Function
	for i := range tables {
		tables[i] = newTable(Config{Store: stores[i], Flush: time.Millisecond, Refresh: time.Millisecond})
		fs[i] = tables[i].Declare("f", journal{}, []string{"a", "b"})
	}
	sync := func(i int) {
		t.Helper()
		fs[i].states.value.use()
		if err := tables[i].syncAll(time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	sync(0)
	right(fs[0], 0, 2)
	sync(0)
	key := state.Key{Function: "f", Policy: "journal"}
	if _, err := stores[0].LeaseValue(t.Context(), key, time.Millisecond); err != nil { // it runs out while the gateway is stopped
		t.Fatal(err)
	}
	until(t, "the lease is the other one's", func() bool { sync(1); return fs[1].states.value.fence != 0 })
	right(fs[1], 1, 3)
	sync(1)
	right(fs[0], 0, 100) // it does not know yet
	sync(0)
	wantCounts(t, fs[0], 2, 3)
	if n := tables[0].Stats().Lost; n != 1 {
		t.Errorf("%d changes are counted as lost, want 1", n)
	}
	right(fs[1], 1, 1)
	sync(1)
	wantCounts(t, fs[1], 2, 4)
}

// TestSaveWhoseAnswerIsLost: the save is sent again, and what it had counts once.
func TestSaveWhoseAnswerIsLost(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	lossy := &lossyStore{Backend: openStore(t, server.URL())}
	tables := [2]*Table{newTable(Config{Store: lossy}), newTable(Config{Store: openStore(t, server.URL())})}
	var fs [2]*Function
	for i := range fs {
		fs[i] = tables[i].Declare("f", journal{merges: true}, []string{"a", "b"})
	}
	sync := func(i int) error {
		fs[i].states.value.use()
		return tables[i].syncAll(time.Now())
	}
	right(fs[0], 0, 2)
	lossy.lose = true
	if err := sync(0); err == nil {
		t.Fatal("the answer is lost: want an error")
	}
	right(fs[0], 0, 1)
	right(fs[1], 1, 5)
	if err := sync(1); err != nil {
		t.Fatal(err)
	}
	lossy.lose = false
	for _, i := range []int{0, 1, 0} {
		if err := sync(i); err != nil {
			t.Fatal(err)
		}
	}
	wantCounts(t, fs[0], 3, 5)
	wantCounts(t, fs[1], 3, 5)
}

// lossyStore loses the answers to saves.
type lossyStore struct {
	state.Backend
	lose bool
}

func (s *lossyStore) SaveValue(ctx context.Context, save *state.Save) (state.Saved, error) {
	saved, err := s.Backend.SaveValue(ctx, save)
	if s.lose {
		return state.Saved{}, errAway
	}
	return saved, err
}

// TestDamagedValue: a value that cannot be decoded is replaced by what is learned from then on.
func TestDamagedValue(t *testing.T) {
	for _, damage := range [][]byte{{}, {255}, {2, 1, 'a'}, {1, 1, 'a', 9}, {2, 1, 'a', 1, 'b', 0, 3}, {255, 255, 255, 255, 127}} {
		s := openStore(t, filepath.Join(t.TempDir(), "state.db"))
		if _, err := s.SaveValue(t.Context(), &state.Save{Key: state.Key{Function: "f", Policy: "journal"}, Data: damage, Seq: 1}); err != nil {
			t.Fatal(err)
		}
		table := openTable(t, s)
		f := table.Declare("f", journal{merges: true}, []string{"a", "b"})
		loadedValue(t, f)
		wantCounts(t, f, 0, 0)
		right(f, 1, 1)
		closeTable(t, table)
		table = openTable(t, s)
		f = table.Declare("f", journal{merges: true}, []string{"a", "b"})
		loadedValue(t, f)
		wantCounts(t, f, 0, 1)
		closeTable(t, table)
	}
}

// TestResetValue: a reset of the global state resets the value, which a restart does not bring back. A gateway that follows cannot do it.
func TestResetValue(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	a := openTable(t, openStore(t, server.URL()))
	fa := a.Declare("f", journal{}, []string{"a", "b"})
	loadedValue(t, fa)
	right(fa, 0, 4)
	b := openTable(t, openStore(t, server.URL()))
	fb := b.Declare("f", journal{}, []string{"a", "b"})
	until(t, "the other one follows", func() bool { return slices.Equal(counted(fb), []float64{4, 0}) })
	if _, err := b.Replace(t.Context(), "f", Edit{States: []Saved{{}}}); !errors.Is(err, ErrElsewhere) {
		t.Errorf("a gateway that follows resets the value: %v", err)
	}
	if _, err := a.Replace(t.Context(), "f", Edit{States: []Saved{{}}}); err != nil {
		t.Fatal(err)
	}
	wantCounts(t, fa, 0, 0)
	right(fa, 1, 1)
	until(t, "the other one follows", func() bool { return slices.Equal(counted(fb), []float64{0, 1}) })
	closeTable(t, b)
	closeTable(t, a)
}
