package selection

import (
	"fmt"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

func texts(t Tensor) (all []string) {
	for _, b := range t.All() {
		all = append(all, string(b))
	}
	return all
}

// TestTensors: a view reads numbers and texts of every layout, and stops where the data is damaged.
func TestTensors(t *testing.T) {
	list := func(words ...string) (v api.Value) {
		for _, w := range words {
			v.Data = append(v.Data, byte(len(w)), 0, 0, 0)
			v.Data = append(v.Data, w...)
		}
		v.Dims = []int64{int64(len(words))}
		return v
	}
	in := Tensors{
		Specs:  []api.TensorSpec{{Name: "age", DType: api.Int16, Shape: []int64{2}}, {Name: "words", DType: api.String, Shape: []int64{-1}}, {Name: "text", DType: api.String}},
		Values: []api.Value{api.Numbers[int16](-3, 40), list("a", "", "longer"), {Data: []byte("all of it")}},
	}
	if in.Len() != 3 || (Tensors{}).Len() != 0 {
		t.Error("a query has as many inputs as it has values")
	}
	age, ok := in.Named("age")
	if !ok || !age.Numeric() || age.Elements() != 2 || age.Number(0) != -3 || age.Number(1) != 40 {
		t.Errorf("%v: %d elements", age, age.Elements())
	}
	first, _ := in.Named("")
	if first != age {
		t.Error("the input without a name is the first one")
	}
	words, _ := in.Named("words")
	if got := fmt.Sprintf("%q", texts(words)); words.Numeric() || words.Elements() != 3 || got != `["a" "" "longer"]` {
		t.Errorf("%d words: %s", words.Elements(), got)
	}
	if text, _ := in.Named("text"); fmt.Sprint(texts(text)) != "[all of it]" || text.Elements() != 1 {
		t.Errorf("the text is %q", texts(text))
	}
	if _, ok := in.Named("height"); ok {
		t.Error("there is no input of that name")
	}
	words.Value.Data = words.Value.Data[:len(words.Value.Data)-1]
	if got := len(texts(words)); got != 2 {
		t.Errorf("%d words before the damage, want 2", got)
	}
	for range words.All() {
		break // a consumer may stop
	}
	p := Prediction{Outputs: in}
	if second, ok := p.Judged(1); !ok || second != words {
		t.Error("labels are about output 1")
	}
	if all, ok := p.Judged(-1); !ok || all != age {
		t.Error("without a label output the first one is judged")
	}
	if _, ok := p.Judged(3); ok {
		t.Error("there is no output 3")
	}
}
