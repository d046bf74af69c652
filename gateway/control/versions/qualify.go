package versions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/drift"
	"github.com/xebec-serving/xebec/gateway/quality"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/registry"
	"go.uber.org/zap"
)

// qualifyWithin bounds one query of warm-up or validation, where the model's timeout is longer.
const qualifyWithin = 30 * time.Second //xebec:limit time for a warm-up or validation query, or the model's `timeout` if that is shorter

// qualify warms a loaded version up and validates it. The result moves it on.
func (s *State) qualify(v *Version) {
	c := s.c
	v.qualifying++
	attempt := v.qualifying
	var serving *Version
	if f := s.families[v.ID().Name]; f.Serving != v.ID().Version {
		if other := f.Versions[f.Serving]; other != nil && other.State == registry.Available && other.Answers() {
			serving = other
		}
	}
	if v.unqualify != nil {
		v.unqualify()
	}
	ctx, cancel := context.WithCancel(c.cfg.Life)
	v.unqualify = cancel
	c.cfg.Background(func() {
		defer cancel()
		start := time.Now()
		status, baseline := c.examine(ctx, v, serving)
		status.At, status.TookMS = start, time.Since(start).Milliseconds()
		s := c.Lock()
		defer c.Unlock()
		if v.State != registry.Validating || v.qualifying != attempt || s.versions[v.ID()] != v || s.stopping {
			return
		}
		v.validation = &status
		if baseline != nil {
			v.Model().Drift.Store(drift.NewWatch(baseline))
		}
		v.ForgetErrors()
		if status.Passed {
			c.validated.Add(1)
			c.cfg.Log.Info("version validated", zap.Stringer("model", v.ID()), zap.Int("queries", status.Queries), zap.Int("matched", status.Matched), zap.Int64("took_ms", status.TookMS))
			s.move(v, registry.Available, "")
		} else {
			c.rejected.Add(1)
			s.reject(v, status.Reason)
		}
		s.touch(v.ID().Name)
		c.kick()
	})
}

// examine warms a version up and validates it. The baseline is nil where nothing was validated.
func (c *Catalog) examine(ctx context.Context, v, serving *Version) (status api.ValidationStatus, baseline *drift.Baseline) {
	spec := v.Spec()
	within := min(cmp.Or(spec.Timeout, api.DefaultModelTimeout), qualifyWithin)
	fail := func(format string, args ...any) (api.ValidationStatus, *drift.Baseline) {
		status.Passed, status.Reason = false, fmt.Sprintf(format, args...)
		return status, nil
	}
	if w := spec.Warmup; w != nil && w.Queries != "" {
		cases, err := cases(v, w.Queries)
		if err != nil {
			return fail("warm-up: %v", err)
		}
		for range max(w.Repeat, 1) {
			answers, err := c.cfg.Path.WarmUp(ctx, v.Model(), inputsOf(cases), within)
			status.WarmedUp += len(answers)
			for i, a := range answers {
				if a.Code != api.OK {
					return fail("warm-up: %s:%d: %s", w.Queries, cases[i].Line, v.Explain(a.Code))
				}
			}
			if err != nil {
				return fail("warm-up was cut short: %v", err)
			}
		}
	}
	v.Raise(ctx)
	want := spec.Validation
	if want == nil {
		status.Passed = true
		return status, nil
	}
	cases, err := cases(v, want.Queries)
	if err != nil {
		return fail("validation: %v", err)
	}
	inputs := inputsOf(cases)
	answers, err := c.cfg.Path.Ask(ctx, v.Model(), inputs, within)
	if err != nil {
		if n := len(answers); n > 0 && answers[n-1].Code != api.OK {
			return fail("validation: %s:%d: %s", want.Queries, cases[n-1].Line, v.Explain(answers[n-1].Code))
		}
		return fail("validation was cut short: %v", err)
	}
	var theirs []quality.Answer
	expect := api.ExpectLabels
	if want.Expect == api.ExpectServing {
		expect = ""
		if serving != nil {
			expect = serving.ID().String()
			got, err := c.cfg.Path.Ask(ctx, serving.Model(), inputs, within)
			if err != nil && ctx.Err() != nil {
				return fail("validation was cut short: %v", err)
			}
			if theirs = qualityAnswers(got); serving.Ready() == 0 { // its replicas are gone meanwhile
				theirs, expect = nil, ""
			}
		}
	}
	judged := quality.Judge(want, spec.Outputs, cases, qualityAnswers(answers), theirs, expect)
	judged.WarmedUp = status.WarmedUp
	if status = judged; !status.Passed {
		return status, nil
	}
	if want.Extremes == nil || *want.Extremes {
		if why := c.tryExtremes(ctx, v, within, &status); why != "" {
			return fail("%s", why)
		}
	}
	return status, baselineOf(spec.Signature(), inputs, answers)
}

// tryExtremes sends inputs that a careless or hostile caller may send. The model may refuse them; its process may not end or hang.
func (c *Catalog) tryExtremes(ctx context.Context, v *Version, within time.Duration, status *api.ValidationStatus) string {
	for _, e := range quality.Extremes(v.Spec().Signature()) {
		answers, err := c.cfg.Path.Ask(ctx, v.Model(), [][]api.Value{e.Inputs}, within)
		if len(answers) == 0 {
			return fmt.Sprintf("validation was cut short: %v", err)
		}
		status.Extremes++
		switch code := answers[0].Code; code {
		case api.OK:
		case api.InvalidInput, api.ModelError, api.BadOutput, api.TooLarge:
			status.Refused++
		default:
			return fmt.Sprintf("the extreme input %q ended or stopped a replica: %s; the model must refuse what it cannot take (or say extremes: false)", e.Name, v.Explain(code))
		}
	}
	return ""
}

// maxCases and maxCaseBytes bound a file of recorded queries, decompressed.
const (
	maxCases     = 100_000
	maxCaseBytes = 256 << 20
)

var errNoDir = errors.New("the model was declared without a directory in which its files could lie")

func cases(v *Version, file string) ([]quality.Case, error) {
	dir := v.Files()
	if dir == "" {
		return nil, errNoDir
	}
	return quality.ReadCases(filepath.Join(dir, file), v.Spec().Signature(), maxCases, maxCaseBytes)
}

func inputsOf(cases []quality.Case) [][]api.Value {
	inputs := make([][]api.Value, len(cases))
	for i := range cases {
		inputs[i] = cases[i].Inputs
	}
	return inputs
}

func qualityAnswers(answers []query.Answer) []quality.Answer {
	out := make([]quality.Answer, len(answers))
	for i, a := range answers {
		out[i] = quality.Answer{Code: a.Code, Outputs: a.Outputs}
	}
	return out
}

// baselineOf is what drift compares later queries with.
func baselineOf(sig api.Signature, inputs [][]api.Value, answers []query.Answer) *drift.Baseline {
	var in, out [][]api.Value
	for i, a := range answers {
		if a.Code == api.OK {
			in, out = append(in, inputs[i]), append(out, a.Outputs)
		}
	}
	return drift.NewBaseline(sig, in, out)
}
