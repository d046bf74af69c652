package declarations

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
)

// modelThatCalls is a manifest of a version that calls others.
func modelThatCalls(name, version, calls string) string {
	return strings.NewReplacer("name: m", "name: "+name, `version: "1"`, fmt.Sprintf("version: %q\ncalls: [%s]", version, calls)).Replace(model)
}

func functionOver(name, models string) string {
	return fmt.Sprintf("\n---\nkind: Function\nname: %s\nmodels: [%s]\n", name, models)
}

// A declaration that would close a cycle of calls is refused, whichever comes last, and says which models are on it.
func TestCyclesOfCallsAreRefused(t *testing.T) {
	const next = "\n---\n"
	for _, c := range []struct {
		name, before, set, want string
	}{
		{"itself", "", modelThatCalls("a", "1", "a"), "test.yaml:5:8: model a@1: calls: a calls a: "},
		{"two in one set", "", modelThatCalls("a", "1", "b") + next + modelThatCalls("b", "1", "a"), "model a@1: calls: a calls b calls a: "},
		{"the second one", modelThatCalls("a", "1", "b"), modelThatCalls("b", "1", "a"), "model b@1: calls: a calls b calls a: "},
		{"another version", modelThatCalls("a", "1", "b") + next + modelThatCalls("b", "1", ""), modelThatCalls("b", "2", "a"), "model b@2: calls: a calls b calls a: "},
		{"through a function", modelThatCalls("a", "1", "f") + next + modelThatCalls("b", "1", "a") + functionOver("g", "b"),
			functionOver("f", "b"), "function f: models: calls: a calls f (which asks b) calls a"},
		{"a part of a larger graph", modelThatCalls("start", "1", "a, x") + next + modelThatCalls("x", "1", "y") + next + modelThatCalls("a", "1", "b") + next + modelThatCalls("b", "1", "c"),
			modelThatCalls("c", "1", "y, a"), "model c@1: calls: a calls b calls c calls a: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := begun(t, Config{})
			ctx := context.Background()
			if c.before != "" {
				b.mustApply(c.before)
			}
			_, err := b.Apply(ctx, decoded(t, c.set), true)
			var known *api.Error
			if !errors.As(err, &known) || known.Code != api.InvalidArgument || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got  %v\nwant %s", err, c.want)
			}
			var lines manifest.Errors
			if !errors.As(err, &lines) || len(lines) == 0 {
				t.Errorf("%v has no lines", err)
			}
		})
	}
}

// Calls of what is not declared yet, and graphs in which several paths lead to one model, are allowed.
func TestCallsWithoutACycle(t *testing.T) {
	b := begun(t, Config{})
	b.mustApply(modelThatCalls("a", "1", "b, c"), modelThatCalls("b", "1", "d"), modelThatCalls("c", "1", "d, f"), modelThatCalls("d", "1", "later"), functionOver("f", "d"))
	b.hasServed("a")
	if err := b.apply(modelThatCalls("a", "1", "b")); code(err) != api.Conflict || !strings.Contains(err.Error(), "other calls") {
		t.Errorf("a version that calls others than before: %v", err)
	}
}
