package api

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func validTraffic() TrafficSpec {
	return TrafficSpec{
		Model: "digits", Serving: "3",
		Shadow:  &VersionShare{Version: "5", Percent: 5},
		Rollout: &RolloutSpec{Version: "4"},
		Labels:  map[string]string{"stable": "3", "canary": "4"},
	}
}

func TestTrafficDefaults(t *testing.T) {
	given := validTraffic()
	got := given.WithDefaults()
	want := validTraffic()
	want.Transition = TransitionAvailability
	want.Rollout = &RolloutSpec{Version: "4", Policy: PolicySpec{Name: PolicyExp3}, Guard: GuardSpec{MinFeedback: 200, MaxErrorIncrease: 0.02, MaxP99Increase: 0.5}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(validTraffic(), given); diff != "" {
		t.Errorf("the caller's own spec was changed (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(got, got.WithDefaults()); diff != "" {
		t.Errorf("defaults twice (-once +twice):\n%s", diff)
	}
	set := TrafficSpec{Model: "m", Transition: TransitionResources, Rollout: &RolloutSpec{
		Version: "1", Policy: PolicySpec{Name: PolicyUCB1}, Guard: GuardSpec{MinFeedback: 1, MaxErrorIncrease: 1, MaxP99Increase: 1000},
	}}
	if diff := cmp.Diff(set, set.WithDefaults()); diff != "" {
		t.Errorf("defaults of what has them (-before +after):\n%s", diff)
	}
	for _, spec := range []TrafficSpec{got, set, TrafficSpec{Model: "m"}.WithDefaults()} {
		if err := spec.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestTrafficValidation(t *testing.T) {
	const versionRule = `expected letters, digits, '.', '_' and '-', starting with a letter or digit`
	const policyRule = `expected one that asks one version for each query: exp3, epsilon-greedy, ucb1, thompson, split`
	for _, c := range []struct {
		name string
		spec func(*TrafficSpec)
		want string
	}{
		{"valid", func(*TrafficSpec) {}, ""},
		{"nothing but the name", func(s *TrafficSpec) { *s = TrafficSpec{Model: "m"} }, ""},
		{"name", func(s *TrafficSpec) { s.Model = "" }, "name: model name is empty"},
		{"name of a version", func(s *TrafficSpec) { s.Model = "m@1" }, `name: model name "m@1": expected lower-case letters, digits and '-' (not first or last)`},
		{"all", func(s *TrafficSpec) { s.Versions.All = true }, ""},
		{"latest", func(s *TrafficSpec) { s.Versions.Latest = MaxLatest }, ""},
		{"specific", func(s *TrafficSpec) { s.Versions.Specific = []string{"3", "2026-01-02"} }, ""},
		{"two version policies", func(s *TrafficSpec) { s.Versions = VersionPolicy{All: true, Latest: 1} }, "versions: has more than one of all, latest and specific: expected one of them"},
		{"three version policies", func(s *TrafficSpec) { s.Versions = VersionPolicy{All: true, Latest: 1, Specific: []string{"1"}} }, "versions: has more than one of all, latest and specific: expected one of them"},
		{"negative latest", func(s *TrafficSpec) { s.Versions.Latest = -1 }, "versions.latest: -1: expected 1 to 10000, or versions: all"},
		{"large latest", func(s *TrafficSpec) { s.Versions.Latest = 10001 }, "versions.latest: 10001: expected 1 to 10000, or versions: all"},
		{"specific of no version", func(s *TrafficSpec) { s.Versions.Specific = []string{"1", "-"} }, `versions.specific[1]: version "-": ` + versionRule},
		{"specific of nothing", func(s *TrafficSpec) { s.Versions.Specific = []string{""} }, "versions.specific[0]: is missing: expected a version of the model"},
		{"specific twice", func(s *TrafficSpec) { s.Versions.Specific = []string{"1", "2", "1"} }, `versions.specific[2]: "1" is there twice`},
		{"many specific", func(s *TrafficSpec) { s.Versions.Specific = make([]string, 65) }, "versions.specific: has 65 versions: expected at most 64"},
		{"resources", func(s *TrafficSpec) { s.Transition = TransitionResources }, ""},
		{"transition", func(s *TrafficSpec) { s.Transition = "fast" }, `transition: "fast": expected availability or resources`},
		{"serving", func(s *TrafficSpec) { s.Serving = "@3" }, `serving: version "@3": ` + versionRule},
		{"split", func(s *TrafficSpec) { s.Rollout, s.Split = nil, &VersionShare{"4", 100} }, ""},
		{"split of no version", func(s *TrafficSpec) { s.Rollout, s.Split = nil, &VersionShare{"", 10} }, "split.version: is missing: expected a version of the model"},
		{"split of the serving version", func(s *TrafficSpec) { s.Rollout, s.Split = nil, &VersionShare{"3", 10} }, `split.version: "3" is the serving version: expected another one`},
		{"split of nothing", func(s *TrafficSpec) { s.Rollout, s.Split = nil, &VersionShare{"4", 0} }, "split.percent: 0: expected more than 0 and at most 100 (percent of the queries)"},
		{"split of more than all", func(s *TrafficSpec) { s.Rollout, s.Split = nil, &VersionShare{"4", 100.5} }, "split.percent: 100.5: expected more than 0 and at most 100 (percent of the queries)"},
		{"split that is no number", func(s *TrafficSpec) { s.Rollout, s.Split = nil, &VersionShare{"4", math.NaN()} }, "split.percent: NaN: expected more than 0 and at most 100 (percent of the queries)"},
		{"negative shadow", func(s *TrafficSpec) { s.Shadow.Percent = -1 }, "shadow.percent: -1: expected more than 0 and at most 100 (percent of the queries)"},
		{"shadow of the serving version", func(s *TrafficSpec) { s.Shadow.Version = "3" }, `shadow.version: "3" is the serving version: expected another one`},
		{"split and rollout", func(s *TrafficSpec) { s.Split = &VersionShare{"4", 10} }, "rollout: is there beside split, and both give answers to another version: leave one of them out"},
		{"rollout of the serving version", func(s *TrafficSpec) { s.Rollout.Version = "3" }, `rollout.version: "3" is the serving version: expected another one`},
		{"rollout without a serving version", func(s *TrafficSpec) { s.Serving = "" }, ""},
		{"rollout by parameters", func(s *TrafficSpec) {
			s.Rollout.Policy = PolicySpec{Name: PolicyExp3, Params: map[string]any{"eta": 0.1}}
		}, ""},
		{"rollout by several", func(s *TrafficSpec) { s.Rollout.Policy.Name = PolicyExp4 }, `rollout.policy: "exp4": ` + policyRule},
		{"rollout by preference", func(s *TrafficSpec) { s.Rollout.Policy.Name = PolicyPrefer }, `rollout.policy: "prefer": ` + policyRule},
		{"rollout by an unknown policy", func(s *TrafficSpec) { s.Rollout.Policy.Name = "Mine" }, `rollout.policy: "Mine": ` + policyRule},
		{"rollout by a parameter that is no number", func(s *TrafficSpec) {
			s.Rollout.Policy = PolicySpec{Name: PolicyExp3, Params: map[string]any{"eta": math.Inf(1)}}
		}, "rollout.policy.eta: +Inf: expected a finite number"},
		{"negative feedback", func(s *TrafficSpec) { s.Rollout.Guard.MinFeedback = -1 }, "rollout.guard.min_feedback: -1: expected 1 to 1000000000 (judged answers of each of the two versions)"},
		{"much feedback", func(s *TrafficSpec) { s.Rollout.Guard.MinFeedback = 1e9 + 1 }, "rollout.guard.min_feedback: 1000000001: expected 1 to 1000000000 (judged answers of each of the two versions)"},
		{"error increase", func(s *TrafficSpec) { s.Rollout.Guard.MaxErrorIncrease = 1.5 }, "rollout.guard.max_error_increase: 1.5: expected more than 0 and at most 1 (a mean loss, and a part of the queries)"},
		{"error increase that is no number", func(s *TrafficSpec) { s.Rollout.Guard.MaxErrorIncrease = math.NaN() }, "rollout.guard.max_error_increase: NaN: expected more than 0 and at most 1 (a mean loss, and a part of the queries)"},
		{"latency increase", func(s *TrafficSpec) { s.Rollout.Guard.MaxP99Increase = 1001 }, "rollout.guard.max_p99_increase: 1001: expected more than 0 and at most 1000 (a part of the serving version's 99th percentile)"},
		{"negative latency increase", func(s *TrafficSpec) { s.Rollout.Guard.MaxP99Increase = -0.5 }, "rollout.guard.max_p99_increase: -0.5: expected more than 0 and at most 1000 (a part of the serving version's 99th percentile)"},
		{"label", func(s *TrafficSpec) { s.Labels["Canary"] = "4" }, `labels: label name "Canary": expected lower-case letters, digits and '-' (not first or last)`},
		{"label of a digit", func(s *TrafficSpec) { s.Labels["4x"] = "4" }, "labels.4x: starts with a digit, as versions do: expected a letter first"},
		{"label of nothing", func(s *TrafficSpec) { s.Labels["canary"] = "" }, "labels.canary: is missing: expected a version of the model"},
		{"label of no version", func(s *TrafficSpec) { s.Labels["canary"] = "a b" }, `labels.canary: version "a b": ` + versionRule},
		{"label of the serving version's name", func(s *TrafficSpec) { s.Serving, s.Labels["v3"] = "v3", "v3" }, "labels.v3: is the name of a version too: expected a label that no version has for its name"},
		{"label of another label's version", func(s *TrafficSpec) { s.Labels["canary"] = "stable" }, "labels.stable: is the name of a version too: expected a label that no version has for its name"},
		{"label of a split's version", func(s *TrafficSpec) { s.Rollout, s.Split = nil, &VersionShare{"canary", 1} }, "labels.canary: is the name of a version too: expected a label that no version has for its name"},
		{"label of a shadow's version", func(s *TrafficSpec) { s.Shadow.Version = "canary" }, "labels.canary: is the name of a version too: expected a label that no version has for its name"},
		{"label of a rollout's version", func(s *TrafficSpec) { s.Rollout.Version = "canary" }, "labels.canary: is the name of a version too: expected a label that no version has for its name"},
		{"label of a specific version", func(s *TrafficSpec) { s.Versions.Specific = []string{"canary"} }, "labels.canary: is the name of a version too: expected a label that no version has for its name"},
		{"label of a rollback's version", func(s *TrafficSpec) { s.Rollback = &RollbackSpec{From: "2", To: "canary"} }, "labels.canary: is the name of a version too: expected a label that no version has for its name"},
		{"many labels", func(s *TrafficSpec) {
			for i := range MaxLabels - 1 {
				s.Labels[fmt.Sprintf("label-%d", i)] = "1"
			}
		}, "labels: has 65 labels: expected at most 64"},
		{"rollback", func(s *TrafficSpec) { s.Rollback = &RollbackSpec{"10", "9", "the bad one"} }, ""},
		{"rollback from nothing", func(s *TrafficSpec) { s.Rollback = &RollbackSpec{To: "3"} }, "rollback.from: is missing: expected a version of the model"},
		{"rollback to nothing", func(s *TrafficSpec) { s.Rollback = &RollbackSpec{From: "3"} }, "rollback.to: is missing: expected a version of the model"},
		{"rollback to the same", func(s *TrafficSpec) { s.Rollback = &RollbackSpec{From: "3", To: "03"} }, `rollback.to: "03" is not older than "3": a rollback goes from a version to an older one`},
		{"rollback to a newer one", func(s *TrafficSpec) { s.Rollback = &RollbackSpec{From: "9", To: "10"} }, `rollback.to: "10" is not older than "9": a rollback goes from a version to an older one`},
		{"reason of two lines", func(s *TrafficSpec) { s.Rollback = &RollbackSpec{"4", "3", "a\nb"} }, `rollback.reason: "a\nb": expected UTF-8 text without control characters`},
		{"reason that is no text", func(s *TrafficSpec) { s.Rollback = &RollbackSpec{"4", "3", "\xff"} }, `rollback.reason: "\xff": expected UTF-8 text without control characters`},
		{"long reason", func(s *TrafficSpec) { s.Rollback = &RollbackSpec{"4", "3", strings.Repeat("x", 1025)} }, "rollback.reason: has 1025 bytes: expected at most 1024"},
		{"several at once", func(s *TrafficSpec) { s.Transition, s.Shadow.Percent = "x", 101 }, `transition: "x": expected availability or resources` + "\n" +
			"shadow.percent: 101: expected more than 0 and at most 100 (percent of the queries)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := validTraffic()
			c.spec(&s)
			exactError(t, s.WithDefaults().Validate(), c.want)
		})
	}
}

func TestQualityValidation(t *testing.T) {
	for _, c := range []struct {
		name string
		spec func(*ModelSpec)
		want string
	}{
		{"warm-up", func(m *ModelSpec) { m.Warmup = &WarmupSpec{Queries: "data/warmup.jsonl.zst", Repeat: 1000} }, ""},
		{"a name with dots", func(m *ModelSpec) { m.Warmup = &WarmupSpec{Queries: "./..data/a..b"} }, ""},
		{"no warm-up with recent queries", func(m *ModelSpec) { m.Warmup = &WarmupSpec{Recent: new(bool)} }, ""},
		{"warm-up of two kinds", func(m *ModelSpec) { m.Warmup = &WarmupSpec{Queries: "q", Recent: new(bool)} }, "warmup.recent: is for a model without warmup.queries: expected one of the two"},
		{"warm-up with nothing", func(m *ModelSpec) { m.Warmup = &WarmupSpec{} }, "warmup.queries: is missing: expected a file in the model's directory, one JSON object a line, such as queries.jsonl"},
		{"warm-up from anywhere", func(m *ModelSpec) { m.Warmup = &WarmupSpec{Queries: "/etc/passwd"} }, `warmup.queries: "/etc/passwd" is an absolute path: expected one relative to the model's directory`},
		{"warm-up from above", func(m *ModelSpec) { m.Warmup = &WarmupSpec{Queries: "a/../../b"} }, `warmup.queries: "a/../../b" leaves the model's directory: expected a path without ..`},
		{"warm-up from just above", func(m *ModelSpec) { m.Warmup = &WarmupSpec{Queries: ".."} }, `warmup.queries: ".." leaves the model's directory: expected a path without ..`},
		{"warm-up from no path", func(m *ModelSpec) { m.Warmup = &WarmupSpec{Queries: "a\x00b"} }, `warmup.queries: "a\x00b": expected UTF-8 text without NUL`},
		{"warm-up from a long path", func(m *ModelSpec) { m.Warmup = &WarmupSpec{Queries: strings.Repeat("x", 5000)} }, "warmup.queries: has 5000 bytes: expected at most 4096"},
		{"much warm-up", func(m *ModelSpec) { m.Warmup = &WarmupSpec{Queries: "q", Repeat: 1001} }, "warmup.repeat: 1001: expected 1 to 1000"},
		{"negative warm-up", func(m *ModelSpec) { m.Warmup = &WarmupSpec{Queries: "q", Repeat: -1} }, "warmup.repeat: -1: expected 1 to 1000"},
		{"validation", func(m *ModelSpec) { m.Validation = &ValidateSpec{Queries: "q", MinAccuracy: 1, Tolerance: 1e12} }, ""},
		{"validation by the serving version", func(m *ModelSpec) {
			m.Validation = &ValidateSpec{Queries: "q", Expect: ExpectServing, MaxDifference: 1}
		}, ""},
		{"validation with nothing", func(m *ModelSpec) { m.Validation = &ValidateSpec{} }, "validate.queries: is missing: expected a file in the model's directory, one JSON object a line, such as queries.jsonl"},
		{"validation from above", func(m *ModelSpec) { m.Validation = &ValidateSpec{Queries: "../q"} }, `validate.queries: "../q" leaves the model's directory: expected a path without ..`},
		{"expectation", func(m *ModelSpec) { m.Validation = &ValidateSpec{Queries: "q", Expect: "label"} }, `validate.expect: "label": expected labels or serving`},
		{"accuracy", func(m *ModelSpec) { m.Validation = &ValidateSpec{Queries: "q", MinAccuracy: 90} }, "validate.min_accuracy: 90: expected 0 to 1 (the part of the queries that must be answered as expected)"},
		{"accuracy that is no number", func(m *ModelSpec) { m.Validation = &ValidateSpec{Queries: "q", MinAccuracy: math.NaN()} }, "validate.min_accuracy: NaN: expected 0 to 1 (the part of the queries that must be answered as expected)"},
		{"accuracy without labels", func(m *ModelSpec) {
			m.Validation = &ValidateSpec{Queries: "q", Expect: ExpectServing, MinAccuracy: 0.9}
		}, "validate.min_accuracy: is only for expect: labels; with serving it is max_difference"},
		{"difference with labels", func(m *ModelSpec) { m.Validation = &ValidateSpec{Queries: "q", MaxDifference: 0.1} }, "validate.max_difference: is only for expect: serving; with labels it is min_accuracy"},
		{"difference", func(m *ModelSpec) {
			m.Validation = &ValidateSpec{Queries: "q", Expect: ExpectServing, MaxDifference: 1.1}
		}, "validate.max_difference: 1.1: expected 0 to 1 (the part of the queries that may be answered otherwise)"},
		{"tolerance", func(m *ModelSpec) { m.Validation = &ValidateSpec{Queries: "q", Tolerance: -1} }, "validate.tolerance: -1: expected 0 to 1000000000000 (the difference up to which numbers agree)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := validModel()
			c.spec(&m)
			exactError(t, m.WithDefaults().Validate(), c.want)
		})
	}
	for _, c := range []struct {
		sample float64
		want   string
	}{
		{0, ""},
		{1, ""},
		{10, "log.sample: 10: expected 0 to 1 (the part of the queries that the inference log takes)"},
		{-0.1, "log.sample: -0.1: expected 0 to 1 (the part of the queries that the inference log takes)"},
		{math.NaN(), "log.sample: NaN: expected 0 to 1 (the part of the queries that the inference log takes)"},
	} {
		f := validFunction()
		f.Log = &LogSpec{Sample: c.sample}
		exactError(t, f.WithDefaults().Validate(), c.want)
	}
}

func TestQualityDefaults(t *testing.T) {
	m := validModel()
	m.Warmup, m.Validation = &WarmupSpec{Queries: "w"}, &ValidateSpec{Queries: "v"}
	got := m.WithDefaults()
	yes, no := true, false
	if diff := cmp.Diff(&WarmupSpec{Queries: "w", Repeat: 1}, got.Warmup); diff != "" {
		t.Errorf("warm-up (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&ValidateSpec{Queries: "v", Expect: ExpectLabels, Extremes: &yes}, got.Validation); diff != "" {
		t.Errorf("validation (-want +got):\n%s", diff)
	}
	if m.Warmup.Repeat != 0 || m.Validation.Expect != "" || m.Validation.Extremes != nil {
		t.Errorf("the caller's own spec was changed: %+v, %+v", *m.Warmup, *m.Validation)
	}
	if diff := cmp.Diff(got, got.WithDefaults()); diff != "" {
		t.Errorf("defaults twice (-once +twice):\n%s", diff)
	}
	set := ValidateSpec{Queries: "v", Expect: ExpectServing, Extremes: &no}
	if diff := cmp.Diff(&set, set.withDefaults()); diff != "" {
		t.Errorf("defaults of what has them (-before +after):\n%s", diff)
	}
	for want, v := range map[bool]*ValidateSpec{true: {}, false: {Extremes: &no}} {
		if v.TriesExtremes() != want {
			t.Errorf("extremes %v: got %v", v.Extremes, !want)
		}
	}
}

func TestTrafficJSON(t *testing.T) {
	whole := TrafficSpec{
		Model: "digits", Versions: VersionPolicy{Latest: 2}, Transition: TransitionResources, Serving: "3",
		Split: &VersionShare{"4", 10}, Shadow: &VersionShare{"5", 0.5},
		Rollout: &RolloutSpec{"4", PolicySpec{Name: PolicyExp3, Params: map[string]any{"eta": 0.1}}, GuardSpec{200, 0.02, 0.5}},
		Labels:  map[string]string{"stable": "3", "canary": "4"}, Rollback: &RollbackSpec{"4", "3", "worse"},
	}
	for _, c := range []struct {
		spec TrafficSpec
		want string
	}{
		{TrafficSpec{Model: "m"}, `{"name":"m"}`},
		{TrafficSpec{Model: "m", Versions: VersionPolicy{All: true}}, `{"name":"m","versions":"all"}`},
		{TrafficSpec{Model: "m", Versions: VersionPolicy{Specific: []string{"3", "4"}}}, `{"name":"m","versions":{"specific":["3","4"]}}`},
		{TrafficSpec{Model: "m", Rollout: &RolloutSpec{Version: "4", Policy: PolicySpec{Name: "exp3"}}}, `{"name":"m","rollout":{"version":"4","policy":"exp3"}}`},
		{TrafficSpec{Model: "m", Rollout: &RolloutSpec{Version: "4"}}, `{"name":"m","rollout":{"version":"4"}}`},
		{whole, `{"name":"digits","versions":{"latest":2},"transition":"resources","serving":"3","split":{"version":"4","percent":10},` +
			`"shadow":{"version":"5","percent":0.5},"rollout":{"version":"4","policy":{"name":"exp3","eta":0.1},` +
			`"guard":{"min_feedback":200,"max_error_increase":0.02,"max_p99_increase":0.5}},"labels":{"canary":"4","stable":"3"},` +
			`"rollback":{"from":"4","to":"3","reason":"worse"}}`},
	} {
		raw, err := json.Marshal(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		if string(raw) != c.want {
			t.Errorf("got  %s\nwant %s", raw, c.want)
		}
		var got TrafficSpec
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if diff := cmp.Diff(c.spec, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
	}
	if raw, err := json.Marshal(TrafficSpec{Model: "m", Versions: VersionPolicy{All: true, Latest: 1}}); err == nil {
		t.Errorf("two version policies were written as %s", raw)
	}
	for text, want := range map[string]string{
		`{"versions":"latest"}`: `versions: "latest": expected "all", or an object with latest or specific`,
		`{"versions":3}`:        `versions: expected "all", or an object with latest or specific: `,
		`{"labels":["a"]}`:      "json: cannot unmarshal array",
	} {
		var got TrafficSpec
		checkError(t, json.Unmarshal([]byte(text), &got), want)
	}
}

// exactError expects an error with exactly this text, or no error for "".
func exactError(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
