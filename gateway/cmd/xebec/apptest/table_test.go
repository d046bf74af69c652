package apptest

import (
	"strings"
	"testing"
)

// A table is deployed without code, and versions and rolls back as a model does. A version whose file does not have what is declared
// never serves.
func TestTable(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	g := serveIn(t, dir)
	deploy := func(args ...string) result {
		t.Helper()
		return g.xebecIn(dir, "", append([]string{"deploy", "prices.csv", "--timeout", patience.String()}, args...)...)
	}
	is := func(key, want string) {
		t.Helper()
		if text := g.must("invoke", "prices", "--slo", "60s", "--input", key); strings.TrimSpace(text) != want {
			t.Errorf("%s is %s: expected %s", key, text, want)
		}
	}

	writeFile(t, dir, "prices.csv", "sku,name,price\na1,Nut,1.5\n007,Bolt,2\n")
	r := deploy()
	r.wants(t, "deploy a table", 0, "model prices@1 created\nfunction prices created", "")
	for _, line := range []string{"prices.csv is a table (CSV)", "input sku: string[]", "output price: float64[]", "made xebec-models/prices/1"} {
		if !strings.Contains(r.out, line) {
			t.Errorf("deploy does not say %q:\n%s", line, r.out)
		}
	}
	is(`"a1"`, `{"name":"Nut","price":1.5}`)
	is(`"007"`, `{"name":"Bolt","price":2}`)
	if a := g.json("/prices/predict", `{"input": "zz"}`); a.Status != 400 || !strings.Contains(string(a.Body), "the table has no row with this sku") {
		t.Errorf("a key without a row: %s", a)
	}
	deploy().wants(t, "deploy it again", 0, "model prices@1 unchanged\n", "")

	writeFile(t, dir, "prices.csv", "sku,name,price\na1,Nut,1.75\n007,Bolt,2.5\n,none,0.0\nelse,none,0.5\n")
	deploy("--default", "else").wants(t, "deploy a change", 0, "model prices@2 created\n", "")
	g.awaitServing("prices@2")
	is(`"a1"`, `{"name":"Nut","price":1.75}`)
	is(`"zz"`, `{"name":"none","price":0.5}`)
	g.must("rollback", "prices", "--wait")
	is(`"a1"`, `{"name":"Nut","price":1.5}`)

	writeFile(t, dir, "broken/prices.csv", "sku,name,price\na1,Nut,free\n")
	writeFile(t, dir, "broken/xebec.yaml", `
name: prices
version: "3"
inputs: [{name: sku, dtype: string, shape: []}]
outputs: [{name: name, dtype: string, shape: []}, {name: price, dtype: float64, shape: []}]
run: {command: [xebec, table, prices.csv]}
`)
	g.xebecIn(dir, "", "deploy", "broken", "--timeout", patience.String()).wants(t, "deploy a cell of another type", 1, "",
		`prices.csv: line 2, column "price": "free": expected a value of float64`)
	is(`"a1"`, `{"name":"Nut","price":1.5}`)
	deploy("--key", "nothing").wants(t, "a key that is no column", 1, "", `has no column "nothing"`)
}
