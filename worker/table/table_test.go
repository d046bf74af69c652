package table

import (
	"math"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

const prices = "\ufeffsku,price,stock,name,sold\n" +
	"a1,1.50,3,\"Nut, small\",true\n" +
	"b2,2,0,\"Bolt\nlong\",false\n" +
	"007,0.25,12,,true\n"

func parse(t *testing.T, text string) *Table {
	t.Helper()
	table, err := read("prices.csv", strings.NewReader(text), 100)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func scalar(name string, d api.DType) api.TensorSpec {
	return api.TensorSpec{Name: name, DType: d, Shape: []int64{}}
}

func TestInfer(t *testing.T) {
	for _, test := range []struct{ text, key, want string }{
		{prices, "", "sku string -> price float64, stock int64, name string, sold bool"},
		{prices, "stock", "stock int64 -> sku string, price float64, name string, sold bool"},
		{"id,code,x\n-1,007,1\n2,100,nan\n", "", "id int64 -> code string, x string"},
	} {
		sig, err := parse(t, test.text).Infer(test.key)
		if err != nil {
			t.Fatal(err)
		}
		var outputs []string
		for _, out := range sig.Outputs {
			outputs = append(outputs, out.Name+" "+out.DType.String())
		}
		if got := sig.Inputs[0].Name + " " + sig.Inputs[0].DType.String() + " -> " + strings.Join(outputs, ", "); got != test.want {
			t.Errorf("key %q: inferred %s, expected %s", test.key, got, test.want)
		}
	}
	if _, err := parse(t, prices).Infer("id"); err == nil || !strings.Contains(err.Error(), `no column "id"`) {
		t.Errorf("a key that is no column: %v", err)
	}
}

func TestIndex(t *testing.T) {
	table := parse(t, prices)
	other := "007"
	x, err := table.Index(&api.Signature{Inputs: []api.TensorSpec{scalar("sku", api.String)},
		Outputs: []api.TensorSpec{scalar("price", api.Float32), scalar("name", api.String)}}, &other)
	if err != nil {
		t.Fatal(err)
	}
	row := x.rows["b2"]
	if got := x.columns[0].data[4*row : 4*row+4]; string(got) != string(appendBits(nil, uint64(math.Float32bits(2)), 4)) {
		t.Errorf("the price of b2 is % x", got)
	}
	if got := table.cell(row, x.columns[1].column); string(got) != "Bolt\nlong" || x.other != 2 || len(x.rows) != 3 {
		t.Errorf("the name of b2 is %q; row %d is for other keys, of %d", got, x.other, len(x.rows))
	}
}

// What is wrong with a file or with a declaration is found when it is loaded, and the error says where.
func TestRefused(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", "is empty"},
		{"sku\na\n", "has 1 columns"},
		{"sku,price,price\na,1,2\n", `two columns are called "price"`},
		{"sku,price\n", "has no rows"},
		{"sku,price\na\n", "wrong number of fields"},
		{"sku,price\na,\"1\n", "extraneous or missing"},
		{"sku,price\na,1\n\xff,1\n", `line 3, column "sku": is not UTF-8`},
		{"sku,price\n" + strings.Repeat("a,1\n", 101), "more than 100 rows"},
	} {
		if _, err := read("prices.csv", strings.NewReader(test.text), 100); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.40q: %v: expected %q", test.text, err, test.want)
		}
	}
	sku, price := scalar("sku", api.String), scalar("price", api.Int32)
	signature := func(in, out api.TensorSpec) api.Signature {
		return api.Signature{Inputs: []api.TensorSpec{in}, Outputs: []api.TensorSpec{out}}
	}
	unknown := "zz"
	for _, test := range []struct {
		text  string
		sig   api.Signature
		other *string
		want  string
	}{
		{"sku,price\na,1\n\na,2\n", signature(sku, price), nil, `line 4, column "sku": the key "a" is on line 2 already`},
		{"sku,price\na,1\nb,\n", signature(sku, price), nil, `line 3, column "price": "": expected a value of int32`},
		{"sku,price\na,2147483648\n", signature(sku, price), nil, "expected a value of int32"},
		{"sku,price\na,1\n", signature(scalar("sku", api.Int64), price), nil, `"a": expected a value of int64`},
		{"sku,price\na,1\n", signature(scalar("id", api.String), price), nil, `no column "id"`},
		{"sku,price\na,1\n", signature(sku, scalar("cost", api.Int32)), nil, `no column "cost"`},
		{"sku,price\na,1\n", signature(sku, scalar("price", api.Uint8)), nil, `output "price" is`},
		{"sku,price\na,1\n", signature(sku, api.TensorSpec{Name: "price", DType: api.Int32, Shape: []int64{2}}), nil, `output "price" is`},
		{"sku,price\na,1\n", api.Signature{Inputs: []api.TensorSpec{sku, sku}}, nil, "2 inputs"},
		{"sku,price\na,1\n", signature(sku, price), &unknown, `no row with the key "zz"`},
	} {
		if _, err := parse(t, test.text).Index(&test.sig, test.other); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v: expected %q", test.text, err, test.want)
		}
	}
}
