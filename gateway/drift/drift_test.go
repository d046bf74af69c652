package drift

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"pgregory.net/rapid"
)

// digits is a typical model: a picture and a text as inputs, a label, its score and its name as outputs.
var digits = api.Signature{
	Inputs: []api.TensorSpec{{Name: "image", DType: api.Float32, Shape: []int64{4, 4}}, {Name: "note", DType: api.Bytes}},
	Outputs: []api.TensorSpec{
		{Name: "label", DType: api.Int64}, {Name: "score", DType: api.Float32}, {Name: "name", DType: api.Bytes},
	},
}

// world generates queries and answers. Those of the zero value are the validated ones.
type world struct {
	shift, scale float64 // of pixel (2, 1)
	nan          float64 // how often pixel (3, 3) is NaN
	sevens       float64 // how often the answer is 7 whatever the input
	extraLength  int     // by how much notes are longer
	newNames     bool    // names are texts that were never validated
}

func (w world) query(r *rand.Rand) (inputs, outputs []api.Value) {
	var image []byte
	for p := range 16 {
		x := r.NormFloat64()
		switch {
		case p == 0:
			x = 0 // the border is black
		case p == 1 && r.Float64() < 0.95:
			x = 0 // most values next to the border are also black
		case p == 9:
			x = x*(1+w.scale) + w.shift
		case p == 15 && r.Float64() < w.nan:
			x = math.NaN()
		}
		image = binary.LittleEndian.AppendUint32(image, math.Float32bits(float32(x)))
	}
	label := uint64(math.Sqrt(float64(r.IntN(100)))) // 9 is most frequent, 0 is rare
	if r.Float64() < w.sevens {
		label = 7
	}
	name := fmt.Sprintf("digit %d", label)
	if w.newNames {
		name = fmt.Sprintf("it may well be %d", r.IntN(1000))
	}
	note := make([]byte, 20+r.IntN(30)+w.extraLength)
	return []api.Value{{Data: image}, {Data: note}}, []api.Value{
		{Data: binary.LittleEndian.AppendUint64(nil, label)},
		{Data: binary.LittleEndian.AppendUint32(nil, math.Float32bits(r.Float32()))},
		{Data: []byte(name)},
	}
}

func (w world) baseline(r *rand.Rand, n int) *Baseline {
	var inputs, outputs [][]api.Value
	for range n {
		in, out := w.query(r)
		inputs, outputs = append(inputs, in), append(outputs, out)
	}
	return NewBaseline(digits, inputs, outputs)
}

func (w world) serve(r *rand.Rand, watch *Watch, n int) *api.DriftStatus {
	for range n {
		in, out := w.query(r)
		observe(watch, in, out)
	}
	return watch.Report()
}

// observe counts a query so late that a full window ends.
func observe(watch *Watch, in, out []api.Value) {
	watch.Observe(watch.current.since+api.Nanos(windowTime), in, out)
}

func TestNoFalseAlarm(t *testing.T) {
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, 2))
		for _, validated := range []int{50, 120, 1000} {
			watch := NewWatch(world{}.baseline(r, validated))
			for _, served := range []int{200, 800, 5000} { // in total, including those before
				if got := (world{}).serve(r, watch, served); got.Input >= 0.1 || got.Output >= 0.1 || got.Validated != validated {
					t.Errorf("seed %d, %d validated: %+v", seed, validated, got)
				}
			}
		}
	}
}

func TestDriftIsReported(t *testing.T) {
	for _, c := range []struct {
		what      string
		world     world
		feature   string
		output    bool
		validated string // prefixes of the summaries
		served    string
	}{
		{"a mean has moved", world{shift: 1.5}, "image[2,1]", false, "", "1."},
		{"a scale has changed", world{scale: 3}, "image[2,1]", false, "", ""},
		{"values are missing", world{nan: 0.2}, "image[3,3]", false, "", ""},
		{"texts are longer", world{extraLength: 25}, "note (length)", false, "34.", "5"},
		{"a label takes over", world{sevens: 0.4}, "label", true, "", "7 ("},
		{"new labels", world{newNames: true}, "name", true, "digit ", "others (100%)"},
	} {
		t.Run(c.what, func(t *testing.T) {
			for seed := range uint64(10) {
				r := rand.New(rand.NewPCG(seed, 3))
				watch := NewWatch(world{}.baseline(r, 1000))
				got := c.world.serve(r, watch, 1000)
				if len(got.Features) == 0 {
					t.Fatalf("seed %d: no drift was reported: %+v", seed, got)
				}
				top := got.Features[0]
				index, other := got.Input, got.Output
				if c.output {
					index, other = other, index
				}
				if top.PSI <= 0.25 || index != top.PSI || other >= 0.1 {
					t.Errorf("seed %d: %+v", seed, got)
				}
				// A label and its name drift together.
				if top.Name != c.feature && !(c.world.sevens > 0 && top.Name == "name") {
					t.Errorf("seed %d: %s has drifted most, want %s: %+v", seed, top.Name, c.feature, got)
				}
				for _, f := range got.Features {
					if f.Name == c.feature && (!strings.HasPrefix(f.Validated, c.validated) || !strings.HasPrefix(f.Served, c.served)) {
						t.Errorf("seed %d: %+v, want %s…, then %s…", seed, f, c.validated, c.served)
					}
				}
				if c.world.nan > 0 && !strings.HasSuffix(top.Served, "% not finite)") {
					t.Errorf("seed %d: %+v does not report the missing values", seed, top)
				}
			}
		})
	}
}

// When the world is as before, the drift ends with the windows that contain it.
func TestDriftEnds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	watch := NewWatch(world{}.baseline(r, 1000))
	if got := (world{shift: 3}).serve(r, watch, windowQueries); got.Input <= 0.25 || got.Served != windowQueries {
		t.Fatalf("%+v", got)
	}
	if got := (world{}).serve(r, watch, windowQueries); got.Input <= 0.25 || got.Served != 2*windowQueries {
		t.Errorf("half of the served queries had drifted: %+v", got)
	}
	if got := (world{}).serve(r, watch, 1); got.Input >= 0.1 || got.Served != windowQueries+1 {
		t.Errorf("the drift ended %d queries ago: %+v", windowQueries+1, got)
	}
}

// A window covers some time, however many queries come.
func TestWindowsCoverTime(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	watch := NewWatch(world{}.baseline(r, 1000))
	in, out := (world{}).query(r)
	at := func(now time.Duration, n int) int {
		for range n {
			watch.Observe(api.Nanos(now), in, out)
		}
		return watch.Report().Served
	}
	for _, step := range []struct {
		now         time.Duration
		more, after int
	}{
		{time.Hour, windowQueries, windowQueries},
		{time.Hour + windowTime - 1, windowQueries, 2 * windowQueries}, // they are of less than 10 s
		{time.Hour + windowTime, 1, 2*windowQueries + 1},               // the second window
		{time.Hour + 2*windowTime, windowQueries - 1, 3 * windowQueries},
		{time.Hour + 2*windowTime, 1, windowQueries + 1}, // the first one is forgotten
	} {
		if got := at(step.now, step.more); got != step.after {
			t.Errorf("after %v %d queries are compared, want %d", step.now, got, step.after)
		}
	}
}

func TestTooFewQueries(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	watch := NewWatch(world{}.baseline(r, 1000))
	if got := (world{shift: 9}).serve(r, watch, minServed-1); got != nil {
		t.Errorf("before %d queries: %+v", minServed, got)
	}
	if got := (world{shift: 9}).serve(r, watch, 1); got.Input <= 0.25 {
		t.Errorf("after %d queries: %+v", minServed, got)
	}
	watch = NewWatch(world{}.baseline(r, minValidated-1))
	if got := (world{shift: 9}).serve(r, watch, 1000); got != nil {
		t.Errorf("a small baseline: %+v", got)
	}
	if got := NewWatch(NewBaseline(digits, nil, nil)).Report(); got != nil {
		t.Errorf("no baseline: %+v", got)
	}
}

// The index of two labels, computed by hand: the example in the package comment.
func TestStabilityByHand(t *testing.T) {
	const n = 1_000_000
	want := 0.2*math.Log(0.7/0.5) + 0.2*math.Log(0.5/0.3)
	if got := stability([]uint32{n / 2, n / 2, 0}, []uint32{7 * n / 10, 3 * n / 10, 0}); math.Abs(got-want) > 1e-4 {
		t.Errorf("got %g, want %g", got, want)
	}
	for _, same := range [][2][]uint32{
		{{50, 30, 20}, {500, 300, 200}}, {{7}, {9}}, {{0, 0}, {0, 0}}, {{1, 1}, {0, 0}}, {{0, 10}, {0, 4000}}, {{50, 1, 0}, {4000, 70, 12}},
	} {
		if got := stability(same[0], same[1]); got != 0 {
			t.Errorf("%v and %v: %g", same[0], same[1], got)
		}
	}
}

func TestEdges(t *testing.T) {
	next := func(x float64) float64 { return math.Nextafter(x, math.Inf(1)) }
	repeat := func(parts ...float64) (all []float64) { // value, count …
		for i := 0; i < len(parts); i += 2 {
			for range int(parts[i+1]) {
				all = append(all, parts[i])
			}
		}
		return all
	}
	ramp := make([]float64, 1000)
	for i := range ramp {
		ramp[i] = float64(i)
	}
	for _, c := range []struct {
		what   string
		sorted []float64
		want   []float64
	}{
		{"nothing", nil, nil},
		{"a constant", repeat(3, 100), []float64{3, next(3)}},
		{"two values", repeat(0, 60, 1, 40), []float64{0, next(0), 1, next(1)}},
		{"a thousand different values", ramp, []float64{100, 200, 300, 400, 500, 600, 700, 800, 900}},
		{"few", ramp[:60], []float64{30}},
		{"mostly zero, with a tail", append(repeat(0, 940), ramp[1:61]...), []float64{0, next(0), 21, 41}},
	} {
		got := edges(c.sorted)
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

// Tensors of open shape and sequences of BYTES have sizes and means instead of elements as features.
func TestOpenShapes(t *testing.T) {
	sig := api.Signature{
		Inputs: []api.TensorSpec{
			{Name: "x", DType: api.Float32, Shape: []int64{-1}}, {Name: "words", DType: api.Bytes, Shape: []int64{-1}}, {Name: "pair", DType: api.Bytes, Shape: []int64{2}},
		},
		Outputs: []api.TensorSpec{{Name: "y", DType: api.Int32, Shape: []int64{-1}}, {Name: "half", DType: api.Float16}},
	}
	r := rand.New(rand.NewPCG(1, 1))
	query := func(mean float64, more, wordBytes int) (in, out []api.Value) {
		n := 5 + r.IntN(20) + more
		var x, pair, y []byte
		for range n {
			x = binary.LittleEndian.AppendUint32(x, math.Float32bits(float32(mean+r.NormFloat64())))
			y = binary.LittleEndian.AppendUint32(y, uint32(r.IntN(100)))
		}
		for range 2 {
			size := 3 + r.IntN(5)
			pair = append(binary.LittleEndian.AppendUint32(pair, uint32(size)), make([]byte, size)...)
		}
		dims := []int64{int64(n)}
		half := binary.LittleEndian.AppendUint16(nil, api.Float64ToFloat16(r.NormFloat64()))
		return []api.Value{{Data: x, Dims: dims}, {Data: wordsOf(r, n, wordBytes), Dims: dims}, {Data: pair, Dims: []int64{2}}}, []api.Value{{Data: y, Dims: dims}, {Data: half}}
	}
	var inputs, outputs [][]api.Value
	for range 1000 {
		in, out := query(0, 0, 4)
		inputs, outputs = append(inputs, in), append(outputs, out)
	}
	b := NewBaseline(sig, inputs, outputs)
	var names []string
	for _, f := range b.features {
		names = append(names, f.name)
	}
	if got, want := strings.Join(names, ", "), "x (elements), x (mean), words (elements), words (mean length), pair (mean length), y (elements), y (mean), half"; got != want {
		t.Fatalf("features %s, want %s", got, want)
	}
	for _, c := range []struct {
		mean      float64
		more      int
		wordBytes int
		want      map[string]bool
	}{
		{0, 0, 4, map[string]bool{}},
		{2, 0, 4, map[string]bool{"x (mean)": true}},
		{0, 15, 4, map[string]bool{"x (elements)": true, "words (elements)": true, "y (elements)": true}},
		{0, 0, 9, map[string]bool{"words (mean length)": true}},
	} {
		watch := NewWatch(b)
		for range 1000 {
			in, out := query(c.mean, c.more, c.wordBytes)
			observe(watch, in, out)
		}
		got := watch.Report()
		moved := map[string]bool{}
		for _, f := range got.Features {
			if f.PSI > 1 { // means of more elements vary less, which is also detected
				moved[f.Name] = true
			}
		}
		if fmt.Sprint(moved) != fmt.Sprint(c.want) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

func wordsOf(r *rand.Rand, n, size int) (data []byte) {
	for range n {
		k := size - 2 + r.IntN(5)
		data = append(binary.LittleEndian.AppendUint32(data, uint32(k)), make([]byte, k)...)
	}
	return data
}

// For arbitrary values nothing panics, indices are finite numbers, and the report is valid JSON.
func TestHostileValues(t *testing.T) {
	dtypes := rapid.Uint8Range(uint8(api.Bool), uint8(api.Bytes))
	dims := rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(-1, 6), rapid.Just(int64(math.MaxInt64))), 0, 3)
	value := rapid.Custom(func(t *rapid.T) api.Value {
		return api.Value{Data: rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "data"), Dims: dims.Draw(t, "dims")}
	})
	rapid.Check(t, func(t *rapid.T) {
		tensors := rapid.Custom(func(t *rapid.T) api.TensorSpec {
			shape := rapid.SliceOfN(rapid.Int64Range(-1, 5), 0, 3).Draw(t, "shape")
			return api.TensorSpec{Name: rapid.StringN(1, 4, 8).Draw(t, "name"), DType: api.DType(dtypes.Draw(t, "dtype")), Shape: shape}
		})
		sig := api.Signature{Inputs: rapid.SliceOfN(tensors, 0, 3).Draw(t, "inputs"), Outputs: rapid.SliceOfN(tensors, 0, 3).Draw(t, "outputs")}
		rows := rapid.SliceOfN(rapid.SliceOfN(value, 0, 4), 1, 6)
		in, out := rows.Draw(t, "validated inputs"), rows.Draw(t, "validated outputs")
		var inputs, outputs [][]api.Value
		for i := range 60 {
			inputs, outputs = append(inputs, in[i%len(in)]), append(outputs, out[i%len(out)])
		}
		watch := NewWatch(NewBaseline(sig, inputs, outputs))
		in, out = rows.Draw(t, "served inputs"), rows.Draw(t, "served outputs")
		for i := range 250 {
			observe(watch, in[i%len(in)], out[i%len(out)])
		}
		got := watch.Report()
		if got == nil {
			return // a model without features
		}
		for _, index := range []float64{got.Input, got.Output} {
			if index < 0 || !finite(index) {
				t.Fatalf("%+v", got)
			}
		}
		if _, err := json.Marshal(got); err != nil || len(got.Features) > maxReported {
			t.Fatalf("%+v: %v", got, err)
		}
	})
}

// The memory of a baseline and a watch is bounded however many and large the tensors are.
func TestMemoryIsBounded(t *testing.T) {
	const tensors = 64
	var sig api.Signature
	for i := range tensors {
		t := api.TensorSpec{Name: fmt.Sprintf("t%d", i), DType: api.Uint8, Shape: []int64{10, 100}}
		sig.Inputs, sig.Outputs = append(sig.Inputs, t), append(sig.Outputs, t)
	}
	r := rand.New(rand.NewPCG(1, 1))
	var inputs, outputs [][]api.Value
	for range 400 {
		var in, out []api.Value
		for range tensors {
			data := make([]byte, 1000)
			for i := range data {
				data[i] = byte(r.IntN(60))
			}
			in, out = append(in, api.Value{Data: data}), append(out, api.Value{Data: data})
		}
		inputs, outputs = append(inputs, in), append(outputs, out)
	}
	b := NewBaseline(sig, inputs, outputs)
	if len(b.features) != 2*maxFeatures || b.bins > 2*maxFeatures*(maxLabels+1) {
		t.Errorf("%d features of %d bins", len(b.features), b.bins)
	}
	if got, want := b.features[3].name, "t0[7,50]"; got != want {
		t.Errorf("the fourth feature is %s, want %s", got, want)
	}
}
