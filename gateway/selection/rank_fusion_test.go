package selection

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// wordsOut is the output of a model that ranks texts; scoredOut has their scores as well; top3Out has always three ids.
var (
	wordsOut  = []api.TensorSpec{{Name: "items", DType: api.String, Shape: []int64{-1}}}
	scoredOut = append(wordsOut[:1:1], api.TensorSpec{Name: "scores", DType: api.Float32, Shape: []int64{-1}})
	top3Out   = []api.TensorSpec{{Name: "ids", DType: api.Int32, Shape: []int64{3}}}
)

func listOf(words string) (v api.Value) {
	for _, w := range strings.Fields(words) {
		v.Data = append(binary.LittleEndian.AppendUint32(v.Data, uint32(len(w))), w...)
		v.Dims = []int64{length(v) + 1}
	}
	return v
}

func ranked(lists ...string) (all []Prediction) {
	for i, words := range lists {
		all = append(all, Prediction{Candidate: i, Confidence: math.NaN(), Outputs: Tensors{wordsOut, []api.Value{listOf(words)}}})
	}
	return all
}

func wordsIn(t *testing.T, specs []api.TensorSpec, c *Combination) string {
	t.Helper()
	for i := range specs {
		if err := specs[i].Check(&c.Output[i]); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Join(texts(Tensor{&specs[0], &c.Output[0]}), " ")
}

// TestRankFusion: the paper's scores decide, and the answer is no candidate's list.
func TestRankFusion(t *testing.T) {
	b := newTable(t, "rank-fusion", nil, 3)
	// b: 1/62+1/61+1/61 = .04892; a: 1/61+1/62+1/63 = .04840; c: 1/63+1/63+1/62 = .04788; d once, at rank 4: .0156
	c := b.combine(ranked("a b c", "b a c", "b c a d"))
	if got := wordsIn(t, wordsOut, c); got != "b a c d" || c.Winner != -1 {
		t.Errorf("the answer is %q of candidate %d, want b a c d of none", got, c.Winner)
	}
	if c.Agreed != 0b110 || math.Abs(c.Confidence-2.0/3) > 1e-12 {
		t.Errorf("%b agree, confidence %v: want the two that begin with b", c.Agreed, c.Confidence)
	}
	// Ties go to the item that an earlier candidate has ranked first. Items that are repeated count each time.
	if got := wordsIn(t, wordsOut, b.combine(ranked("x", "y", "z"))); got != "x" {
		t.Errorf("of three lists of one item the answer is %q", got)
	}
	if got := wordsIn(t, wordsOut, b.combine(ranked("x x", "", ""))); got != "x" {
		t.Errorf("an item is repeated: %q", got)
	}
	for _, lists := range [][]Prediction{ranked("", "", ""), nil} {
		if c = b.combine(lists); len(c.Output) > 0 && c.Winner < 0 {
			t.Errorf("of no items %v is made", c.Output)
		}
	}
	if got := wordsIn(t, wordsOut, newTable(t, "rank-fusion", map[string]any{"top": 2.0}, 3).combine(ranked("a b c", "b a c", "b c a d"))); got != "b a" {
		t.Errorf("the top 2 are %q", got)
	}
}

// TestRankFusionOfShapes: lists of a fixed length stay so, scores fill a second output, and outputs that are no lists are not fused.
func TestRankFusionOfShapes(t *testing.T) {
	ids := func(all ...[3]int32) (p []Prediction) {
		for i, x := range all {
			p = append(p, Prediction{Candidate: i, Outputs: Tensors{top3Out, []api.Value{api.Numbers(x[:]...)}}})
		}
		return p
	}
	b := newTable(t, "rank-fusion", nil, 3)
	c := b.combine(ids([3]int32{7, 8, 9}, [3]int32{8, 7, 1}, [3]int32{8, 9, 7}))
	got, err := api.NumbersOf[int32](c.Output[0])
	if err != nil || fmt.Sprint(got) != "[8 7 9]" || top3Out[0].Check(&c.Output[0]) != nil {
		t.Errorf("%v, %v", got, err)
	}
	if c = b.combine(ids([3]int32{7, 7, 7}, [3]int32{7, 7, 8}, [3]int32{7, 7, 8})); c.Winner < 0 {
		t.Errorf("two items do not fill a list of three: %v", c.Output)
	}
	scored := func(words string) Prediction {
		v := listOf(words)
		return Prediction{Outputs: Tensors{scoredOut, []api.Value{v, {Data: make([]byte, 4*length(v)), Dims: v.Dims}}}}
	}
	one, two := scored("a b"), scored("a c")
	two.Candidate = 1
	c = newTable(t, "rank-fusion", map[string]any{"k": 1.0, "learn": false}, 2).combine([]Prediction{one, two})
	scores, err := api.NumbersOf[float32](c.Output[1])
	if words := wordsIn(t, scoredOut, c); err != nil || words != "a b" || fmt.Sprint(scores) != "[1 0.33333334]" {
		t.Errorf("%q with scores %v, %v", words, scores, err)
	}
	if c = b.combine(predictLabels(1, 2, 2)); c.Winner != 0 {
		t.Errorf("labels are no lists: candidate %d wins, want the first one", c.Winner)
	}
}

// TestRankFusionLearns: a candidate that ranks the right item first weighs more, with labels of one item.
func TestRankFusionLearns(t *testing.T) {
	b := newTable(t, "rank-fusion", map[string]any{"k": 1.0}, 3)
	lists := ranked("good bad", "bad good", "bad worse")
	for range 200 {
		b.combine(lists)
		b.label(Tensors{wordsOut, []api.Value{listOf("good")}})
	}
	for i, want := range []float64{0, 0.5, 1} {
		if got := MeanLoss(b.s, i); math.Abs(got-want) > 1e-6 {
			t.Errorf("the mean loss of candidate %d is %v, want 1 less the reciprocal rank: %v", i, got, want)
		}
	}
	if got := wordsIn(t, wordsOut, b.combine(lists)); got != "good bad" {
		t.Errorf("the answer is %q, and the candidate that is always right says good bad", got)
	}
	if got := wordsIn(t, wordsOut, newTable(t, "rank-fusion", map[string]any{"learn": false}, 3).combine(lists)); got != "bad good" {
		t.Errorf("without learning the answer is %q", got)
	}
	b.said = nil // feedback that is no label counts as with other policies
	b.losses[0] = 1
	b.label(Tensors{})
}

func length(v api.Value) int64 {
	if len(v.Dims) == 0 {
		return 0
	}
	return v.Dims[0]
}
