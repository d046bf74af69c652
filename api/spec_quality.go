package api

import "strings"

// WarmupSpec says what a new version answers before it gets traffic. The answers are not checked.
type WarmupSpec struct {
	// Queries is a file of recorded queries, relative to the model's directory: one JSON object a line, {"input": …} as
	// callers write it, plain or, if the name ends in .zst, compressed. The replicas that the version is loaded with
	// evaluate the queries, Repeat times each (0 means 1). Replicas that start later are not warmed up.
	Queries string `json:"queries,omitempty"`
	Repeat  int    `json:"repeat,omitempty" field:"min=1"`
	// Recent is for a version without Queries that is to take over from one of the same signature that is awake: unless it is
	// false, the version first evaluates a few queries that the other one answers while it loads. nil means true.
	Recent *bool `json:"recent,omitempty"`
}

// ValidateSpec is the check that a new version must pass before it gets traffic.
type ValidateSpec struct {
	// Queries is a file as in [WarmupSpec]. Its lines may have a "label" beside the "input".
	Queries string `json:"queries"`
	// Expect is what the answers are compared with. ExpectLabels (the default) means the labels in the file.
	// ExpectServing means the serving version's answers to the same queries; the first version has nothing to be
	// compared with and passes.
	Expect string `json:"expect,omitempty"`
	// MinAccuracy is the smallest part of the queries, from 0 to 1, that must be answered as expected. It is for
	// ExpectLabels.
	MinAccuracy float64 `json:"min_accuracy,omitempty"`
	// MaxDifference is the largest part of the queries, from 0 to 1, that the version may answer differently from the
	// serving version. It is for ExpectServing.
	MaxDifference float64 `json:"max_difference,omitempty"`
	// Tolerance is how far two floating-point elements may be apart, absolutely or relative to the expected one, and
	// still count as equal.
	Tolerance float64 `json:"tolerance,omitempty"`
	// Extremes says whether the version must also survive extreme and malformed inputs: it may refuse them, but they
	// must not end or hang a replica. nil means true.
	Extremes *bool `json:"extremes,omitempty"`
}

// The values of ValidateSpec.Expect.
const (
	ExpectLabels  = "labels"
	ExpectServing = "serving"
)

// LogSpec says which part of a function's queries the inference log records, with their answers and feedback.
type LogSpec struct {
	// Sample is from 0 to 1.
	Sample float64 `json:"sample" need:"the part of the queries that the inference log takes, from 0 to 1"`
}

// Limits of warm-up and validation.
const (
	MaxWarmupRepeat = 1000 //xebec:limit `warmup.repeat`
	MaxTolerance    = 1e12 //xebec:limit `validate.tolerance`
)

// WarmsUpWithRecent reports whether a version may be warmed up with queries that the version before it answers while it loads. Streams are not.
func (m *ModelSpec) WarmsUpWithRecent() bool {
	return (m.Warmup == nil || m.Warmup.Queries == "" && (m.Warmup.Recent == nil || *m.Warmup.Recent)) && m.Validation == nil && !m.Stream
}

// withDefaults returns a copy, nil for nil.
func (w *WarmupSpec) withDefaults() *WarmupSpec {
	if w == nil {
		return nil
	}
	c := *w
	if c.Repeat == 0 && c.Queries != "" {
		c.Repeat = 1
	}
	return &c
}

// withDefaults returns a copy, nil for nil.
func (v *ValidateSpec) withDefaults() *ValidateSpec {
	if v == nil {
		return nil
	}
	c := *v
	if c.Expect == "" {
		c.Expect = ExpectLabels
	}
	if c.Extremes == nil {
		yes := true
		c.Extremes = &yes
	}
	return &c
}

// TriesExtremes reports whether the version must survive extreme and malformed inputs.
func (v *ValidateSpec) TriesExtremes() bool { return v.Extremes == nil || *v.Extremes }

func (w *WarmupSpec) validate(e *FieldErrors) {
	if w == nil {
		return
	}
	if w.Queries != "" || w.Recent == nil {
		validateQueries(e, "warmup.queries", w.Queries)
	}
	if w.Queries != "" && w.Recent != nil {
		e.add("warmup.recent", "is for a model without warmup.queries: expected one of the two")
	}
	if w.Repeat < 0 || w.Repeat > MaxWarmupRepeat {
		e.add("warmup.repeat", "%d: expected 1 to %d", w.Repeat, MaxWarmupRepeat)
	}
}

func (v *ValidateSpec) validate(e *FieldErrors) {
	if v == nil {
		return
	}
	validateQueries(e, "validate.queries", v.Queries)
	switch v.Expect {
	case ExpectLabels:
		if v.MaxDifference != 0 {
			e.add("validate.max_difference", "is only for expect: %s; with %s it is min_accuracy", ExpectServing, ExpectLabels)
		}
	case ExpectServing:
		if v.MinAccuracy != 0 {
			e.add("validate.min_accuracy", "is only for expect: %s; with %s it is max_difference", ExpectLabels, ExpectServing)
		}
	default:
		e.add("validate.expect", "%q: expected %s or %s", v.Expect, ExpectLabels, ExpectServing)
	}
	checkNumber(e, "validate.min_accuracy", v.MinAccuracy, 0, 1, "the part of the queries that must be answered as expected")
	checkNumber(e, "validate.max_difference", v.MaxDifference, 0, 1, "the part of the queries that may be answered otherwise")
	checkNumber(e, "validate.tolerance", v.Tolerance, 0, MaxTolerance, "the difference up to which numbers agree")
}

// validateQueries checks the name of a file of queries. The file must lie in the model's directory: its content belongs
// to the version, and write access to the directory must not make the gateway read other files.
func validateQueries(e *FieldErrors, at, path string) {
	before := len(*e)
	validatePath(e, at, path)
	switch {
	case len(*e) > before:
	case path == "":
		e.add(at, "is missing: expected a file in the model's directory, one JSON object a line, such as queries.jsonl")
	case strings.HasPrefix(path, "/"):
		e.add(at, "%.60q is an absolute path: expected one relative to the model's directory", path)
	default:
		for part := range strings.SplitSeq(path, "/") {
			if part == ".." {
				e.add(at, "%.60q leaves the model's directory: expected a path without ..", path)
				return
			}
		}
	}
}

func (l *LogSpec) validate(e *FieldErrors) {
	if l != nil {
		checkNumber(e, "log.sample", l.Sample, 0, 1, "the part of the queries that the inference log takes")
	}
}
