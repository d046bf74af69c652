package declarations

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/internal/state"
)

// An error in what only the gateway can judge names the line.
func TestRefusalsNameTheLine(t *testing.T) {
	b := begun(t, Config{})
	ctx := context.Background()
	if _, err := b.Apply(ctx, decoded(t, model+fn), false); err != nil {
		t.Fatal(err)
	}
	b.hasServed("m")
	twin := strings.NewReplacer("name: m", "name: n").Replace(model)
	for _, c := range []struct {
		name, text string
		code       api.Code
		want       string
	}{
		{"unknown policy", "kind: Function\nname: f\nmodels: [m]\npolicy: exp33\n", api.InvalidArgument, `test.yaml:4:9: function f: policy: there is no policy "exp33"`},
		{"a name that is reserved", "kind: Function\nname: docs\nmodels: [m]\n", api.InvalidArgument, `test.yaml:2:7: function docs: name: "docs" is reserved: expected another name`},
		{"unknown parameter", "kind: Function\nname: f\nmodels: [m]\npolicy: {name: exp3,\n  etta: 1}\n", api.InvalidArgument, "test.yaml:5:9: function f: policy.etta: "},
		{"value of a parameter", "kind: Function\nname: f\nmodels: [m]\npolicy: {name: exp3, eta: -1}\n", api.InvalidArgument, "test.yaml:4:27: function f: policy.eta: "},
		{"default of the wrong type", "kind: Function\nname: f\nmodels: [m]\ndefault: seven\n", api.InvalidArgument, "test.yaml:4:10: function f: default: "},
		{"no such model", "kind: Function\nname: f\nmodels:\n  - m\n  - x\npolicy: prefer\n", api.InvalidArgument, "test.yaml:5:5: function f: models[1]: there is no model x: declare it in the same manifest or before"},
		{"no such shadow", "kind: Function\nname: f\nmodels: [m]\nshadow: {m@7: 0.5}\n", api.InvalidArgument, "test.yaml:4:15: function f: shadow.m@7: there is no model m@7"},
		{"other inputs", strings.Replace(twin, "[4]", "[3]", 1) + "---\nkind: Function\nname: g\nmodels: [m, n]\npolicy: exp3\n", api.InvalidArgument, "function g: models[1]: model n@1 takes other inputs than m@1"},
		{"device", strings.TrimSuffix(twin, "\n") + "\ndevice: gpu7\n", api.InvalidArgument, `model n@1: device: there is no device "gpu7" here`},
		{"a value in a file that is nowhere", strings.Replace(twin, "A: b", "A: {valueFrom: {file: key}}", 1), api.InvalidArgument, `model n@1: run.env.A.valueFrom.file: "key" is relative, and the model has no directory`},
		{"another version of the same name", strings.Replace(model, "model.py", "other.py", 1), api.Conflict, "model m@1: run: the version exists and has another run: a version never changes once it has served"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := b.Apply(ctx, decoded(t, c.text), true)
			var known *api.Error
			if !errors.As(err, &known) || known.Code != c.code || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got  %v\nwant %s", err, c.want)
			}
			var lines manifest.Errors
			if !errors.As(err, &lines) || len(lines) == 0 || lines[0].Line == 0 || len(lines.Problems()) != len(lines) {
				t.Errorf("%v has no lines", err)
			}
		})
	}
}

// A function without models is declared, gets models, and loses them again.
func TestAFunctionWithoutModels(t *testing.T) {
	b := begun(t, Config{})
	for _, text := range []string{
		"kind: Function\nname: f\ndefault: none\n", model, "kind: Function\nname: f\nmodels: [m]\n", "kind: Function\nname: f\ndefault: none\n",
	} {
		if _, err := b.Apply(context.Background(), decoded(t, text), false); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	if changes, err := b.Delete(context.Background(), api.KindModel, api.ModelID{Name: "m"}); err != nil || len(changes) != 1 {
		t.Errorf("the model cannot be deleted: %v, %v", changes, err)
	}
}

// Of several reasons the message names the same one each time, whatever the order of a map.
func TestARefusalNamesTheFirstLabel(t *testing.T) {
	labels := map[string]string{}
	for _, name := range []string{"h", "b", "f", "a", "g", "c", "e", "d"} {
		labels[name] = "1"
	}
	for range 20 {
		if where := namedBy(&api.TrafficSpec{Labels: labels}, "1"); where != "label a" {
			t.Fatalf("the version is named by %s, want label a", where)
		}
	}
}

// TestLaterReservedNames: what was declared before its name was reserved stays in force, with a warning, and can be changed.
func TestLaterReservedNames(t *testing.T) {
	core, lines := observer.New(zap.WarnLevel)
	b := begun(t, Config{Log: zap.New(core)})
	b.mustApply(model)
	const docs = "kind: Function\nname: docs\nmodels: [m]\n"
	s := b.cfg.Catalog.Lock()
	b.takeOver(s, *decoded(t, docs), nil, map[state.ObjectKey]string{})
	b.cfg.Catalog.Unlock()
	if _, ok := b.cfg.Functions.Get("docs"); !ok {
		t.Fatal("the stored function is not in force")
	}
	if found := lines.FilterMessageSnippet("reserved by now").Len(); found != 1 {
		t.Errorf("%d warnings", found)
	}
	b.mustApply(docs + "slo: 1s\n")
}
