package server

import (
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

// qualifyWithin bounds how long one query of warm-up or validation may take, where the model's timeout is longer.
const qualifyWithin = 30 * time.Second

// qualify has a version that is loaded prove that it may be asked.
func (s *Server) qualify(d *deployment) {
	d.life.qualifying++
	attempt := d.life.qualifying
	var serving *deployment
	if f := s.families[d.id.Name]; f.serving != d.id.Version {
		if other := f.versions[f.serving]; other != nil && other.life.state == registry.Available && other.answers() {
			serving = other
		}
	}
	if d.life.unqualify != nil {
		d.life.unqualify()
	}
	ctx, cancel := context.WithCancel(s.life)
	d.life.unqualify = cancel
	s.background(func() {
		defer cancel()
		start := time.Now()
		status, baseline := s.examine(ctx, d, serving)
		status.At, status.TookMS = start, time.Since(start).Milliseconds()
		s.mu.Lock()
		defer s.mu.Unlock()
		if d.life.state != registry.Validating || d.life.qualifying != attempt || s.models[d.id] != d || s.stopping {
			return
		}
		d.life.validation = &status
		if baseline != nil {
			d.model.Drift.Store(drift.NewWatch(baseline))
		}
		d.forgetErrors()
		if status.Passed {
			s.qualified.Add(1)
			s.log.Info("version validated", zap.Stringer("model", d.id), zap.Int("queries", status.Queries), zap.Int("matched", status.Matched), zap.Int64("took_ms", status.TookMS))
			s.moveLocked(d, registry.Available, "")
		} else {
			s.rejected.Add(1)
			s.rejectLocked(d, status.Reason)
		}
		s.touchLocked(d.id.Name)
		s.changed()
	})
}

// examine warms a version up and validates it. The baseline is nil where nothing was validated.
func (s *Server) examine(ctx context.Context, d, serving *deployment) (status api.ValidationStatus, baseline *drift.Baseline) {
	spec := d.spec()
	within := min(spec.Timeout, qualifyWithin)
	fail := func(format string, args ...any) (api.ValidationStatus, *drift.Baseline) {
		status.Passed, status.Reason = false, fmt.Sprintf(format, args...)
		return status, nil
	}
	if w := spec.Warmup; w != nil {
		cases, err := s.cases(d, w.Queries)
		if err != nil {
			return fail("warm-up: %v", err)
		}
		for range max(w.Repeat, 1) {
			answers, err := s.gw.Ask(ctx, d.model, inputsOf(cases), within)
			status.WarmedUp += len(answers)
			for i, a := range answers {
				if a.Code != api.OK {
					return fail("warm-up: %s:%d: %s", w.Queries, cases[i].Line, d.whyFailed(a.Code))
				}
			}
			if err != nil {
				return fail("warm-up was cut short: %v", err)
			}
		}
	}
	v := spec.Validation
	if v == nil {
		status.Passed = true
		return status, nil
	}
	cases, err := s.cases(d, v.Queries)
	if err != nil {
		return fail("validation: %v", err)
	}
	inputs := inputsOf(cases)
	answers, err := s.gw.Ask(ctx, d.model, inputs, within)
	if err != nil {
		if n := len(answers); n > 0 && answers[n-1].Code != api.OK {
			return fail("validation: %s:%d: %s", v.Queries, cases[n-1].Line, d.whyFailed(answers[n-1].Code))
		}
		return fail("validation was cut short: %v", err)
	}
	var theirs []quality.Answer
	expect := api.ExpectLabels
	if v.Expect == api.ExpectServing {
		expect = ""
		if serving != nil {
			expect = serving.id.String()
			got, err := s.gw.Ask(ctx, serving.model, inputs, within)
			if err != nil && ctx.Err() != nil {
				return fail("validation was cut short: %v", err)
			}
			if theirs = qualityAnswers(got); serving.model.Ready.Load() == 0 { // it is gone meanwhile, and says nothing
				theirs, expect = nil, ""
			}
		}
	}
	judged := quality.Judge(v, spec.Outputs, cases, qualityAnswers(answers), theirs, expect)
	judged.WarmedUp = status.WarmedUp
	if status = judged; !status.Passed {
		return status, nil
	}
	if v.Extremes == nil || *v.Extremes {
		if why := s.tryExtremes(ctx, d, within, &status); why != "" {
			return fail("%s", why)
		}
	}
	return status, baselineOf(spec.Signature(), inputs, answers)
}

// tryExtremes asks what a careless or hostile caller may ask. The model may refuse it; it may not end or hang over it.
func (s *Server) tryExtremes(ctx context.Context, d *deployment, within time.Duration, status *api.ValidationStatus) string {
	for _, e := range quality.Extremes(d.spec().Signature()) {
		answers, err := s.gw.Ask(ctx, d.model, [][]api.Value{e.Inputs}, within)
		if len(answers) == 0 {
			return fmt.Sprintf("validation was cut short: %v", err)
		}
		status.Extremes++
		switch code := answers[0].Code; code {
		case api.OK:
		case api.ModelError, api.BadOutput, api.TooLarge:
			status.Refused++
		default:
			return fmt.Sprintf("the extreme input %q ended or stopped a replica: %s; the model must refuse what it cannot take (or say extremes: false)", e.Name, d.whyFailed(code))
		}
	}
	return ""
}

// forgetErrors takes back what replicas said of inputs that nobody has sent.
func (d *deployment) forgetErrors() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.launches {
		l.lastError, l.lastErrorAt = "", time.Time{}
	}
}

// whyFailed is a code for people, with what the replicas said last.
func (d *deployment) whyFailed(code api.Code) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	said, at := "", time.Time{}
	for _, l := range d.launches {
		if l.lastErrorAt.After(at) {
			said, at = l.lastError, l.lastErrorAt
		}
	}
	if said != "" {
		return code.Reason() + " (" + said + ")"
	}
	return code.Reason()
}

// maxQueryFile bounds a file of recorded queries, decompressed.
const (
	maxCases     = 100_000
	maxCaseBytes = 256 << 20
)

var errNoDir = errors.New("the model was declared without a directory in which its files could lie")

func (s *Server) cases(d *deployment, file string) ([]quality.Case, error) {
	dir := d.spec().Dir
	if dir == "" {
		return nil, errNoDir
	}
	return quality.ReadCases(filepath.Join(dir, file), d.spec().Signature(), maxCases, maxCaseBytes)
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

// baselineOf is what later queries are compared with.
func baselineOf(sig api.Signature, inputs [][]api.Value, answers []query.Answer) *drift.Baseline {
	var in, out [][]api.Value
	for i, a := range answers {
		if a.Code == api.OK {
			in, out = append(in, inputs[i]), append(out, a.Outputs)
		}
	}
	return drift.NewBaseline(sig, in, out)
}
