package oip

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
	"github.com/xebec-serving/xebec/gateway/query"
)

// Repository is what the gateway knows and does about models beside answering queries.
type Repository interface {
	// Models describes all versions of a model, or of all models where name is empty.
	Models(ctx context.Context, name string) ([]api.ModelStatus, error)
	// Statistics counts what each version of a model has done, or of every model where name is empty.
	Statistics(name string) []api.ModelStatistics
	// SetLoaded has the model keep a replica, or lets it sleep. authorization is the value of the request's header field, which must have a
	// token of the admin port. The error is api.Unsupported unless the gateway lets clients control models.
	SetLoaded(ctx context.Context, authorization, model string, loaded bool) error
}

// fails answers with an error.
func (s *service) fails(x dialect.Exchange, err error) { dialect.Fail(x, s.dialect, err) }

// index serves POST /v2/repository/index.
func (s *service) index(x dialect.Exchange) {
	onlyReady, err := readIndex(x.Body())
	if err != nil {
		s.fails(x, err)
		return
	}
	models, err := s.dialect.Repository.Models(context.Background(), "")
	if err != nil {
		s.fails(x, err)
		return
	}
	type entry struct{ name, version, state, reason string }
	var all []entry
	for _, n := range s.path.Names() {
		switch {
		case n.Function == nil:
		case n.Available():
			all = append(all, entry{n.Name, "", stateReady, ""})
		default:
			all = append(all, entry{n.Name, "", stateUnavailable, "none of its models has a replica that is ready"})
		}
	}
	for i := range models {
		state, reason := indexState(&models[i])
		all = append(all, entry{models[i].Spec.Name, models[i].Spec.Version, state, reason})
	}
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.name, b.name), api.CompareVersions(a.version, b.version))
	})
	var a dialect.Answer
	a.Reset(200)
	a.Body = append(a.Body, '[')
	for _, e := range all {
		if onlyReady && e.state != stateReady {
			continue
		}
		if len(a.Body) > 1 {
			a.Body = append(a.Body, ',')
		}
		a.Body = tensorjson.AppendString(append(a.Body, `{"name":`...), e.name)
		a.Body = tensorjson.AppendString(append(a.Body, `,"version":`...), e.version)
		a.Body = tensorjson.AppendString(append(a.Body, `,"state":`...), e.state)
		a.Body = append(tensorjson.AppendString(append(a.Body, `,"reason":`...), e.reason), '}')
	}
	a.Body = append(a.Body, ']')
	x.Answer(&a)
}

// The states of the protocol's index.
const (
	stateReady       = "READY"
	stateLoading     = "LOADING"
	stateUnloading   = "UNLOADING"
	stateUnavailable = "UNAVAILABLE"
)

// indexState maps a version's phase. One that sleeps is ready: a query wakes it. The reason is ours: that of the version may have paths and words of
// its program, which are for operators.
func indexState(m *api.ModelStatus) (state, reason string) {
	switch m.Version.Phase {
	case api.PhaseAvailable:
		switch m.State {
		case api.ModelReady, api.ModelDegraded, api.ModelIdle:
			return stateReady, ""
		case api.ModelStarting:
			return stateLoading, "its replicas start"
		}
		return stateUnavailable, "it has no replica that is ready"
	case api.PhaseLoading:
		return stateLoading, "its replicas start"
	case api.PhaseValidating:
		return stateLoading, "it is validated"
	case api.PhaseDraining:
		return stateUnloading, "what it has accepted is answered"
	case api.PhaseRejected:
		return stateUnavailable, "it was rejected"
	}
	return stateUnavailable, "unloaded"
}

// readIndex reads the body of an index request, which may be empty.
func readIndex(body []byte) (onlyReady bool, err error) {
	if len(body) == 0 {
		return false, nil
	}
	var r tensorjson.Reader
	r.Reset(body)
	err = r.Members(func(name []byte) (err error) {
		if string(name) == "ready" {
			r.Push("ready")
			onlyReady, err = r.Bool()
			r.Pop()
			return err
		}
		return r.Skip()
	})
	if err == nil {
		err = r.End()
	}
	return onlyReady, err
}

// setLoaded serves POST /v2/repository/models/{model}/load and /unload.
func (s *service) setLoaded(loaded bool) func(dialect.Exchange) {
	return func(x dialect.Exchange) {
		err := readLoad(x.Body())
		if err == nil {
			err = s.dialect.Repository.SetLoaded(context.Background(), string(x.Header("Authorization")), x.Param("model"), loaded)
		}
		if err != nil {
			s.fails(x, err)
			return
		}
		x.Answer(&dialect.Answer{Status: 200, ContentType: dialect.JSON, Body: []byte("{}")})
	}
}

// readLoad reads the body of a load or unload request, which may be empty. Configurations and files from clients are refused: they would say
// which program runs.
func readLoad(body []byte) error {
	if len(body) == 0 {
		return nil
	}
	var r tensorjson.Reader
	r.Reset(body)
	err := r.Members(func(name []byte) error {
		if string(name) != "parameters" {
			return r.Skip()
		}
		return parameters(&r, func(name []byte) error {
			if string(name) == "unload_dependents" {
				yes, err := r.Bool()
				if err == nil && yes {
					err = unsupported(&r, "unload_dependents: models have no dependents: functions stay, and wake what they need")
				}
				return err
			}
			return unsupported(&r, strconv.Quote(printable(name))+": what a model is, its files and its configuration, is declared by `xebec apply` or `xebec deploy`, not by clients")
		})
	})
	if err != nil {
		return err
	}
	return r.End()
}

// statistics serves GET …/stats, of a function, a model, a version, or all of them.
func (s *service) statistics(x dialect.Exchange) {
	var a dialect.Answer
	a.Reset(200)
	a.Body = append(a.Body, `{"model_stats":[`...)
	name, version := x.Param("model"), x.Param("version")
	if name == "" {
		for _, n := range s.path.Names() {
			if n.Function != nil {
				a.Body = appendStatistics(a.Body, n, api.ModelStatistics{ID: api.ModelID{Name: n.Name}})
			}
		}
	} else {
		n, err := s.path.Named(name, version)
		if err != nil {
			s.fails(x, err)
			return
		}
		if n.Function != nil {
			a.Body = append(appendStatistics(a.Body, n, api.ModelStatistics{ID: api.ModelID{Name: n.Name}}), "]}"...)
			x.Answer(&a)
			return
		}
		if version != "" || name != n.Model.ID.Name { // a label, or name@version, means a version
			version = n.Model.ID.Version
		}
		name = n.Model.ID.Name
	}
	for _, st := range s.dialect.Repository.Statistics(name) {
		m, err := s.path.Model(st.ID.Name, st.ID.Version)
		if err == nil && (version == "" || st.ID.Version == version) { // else it was removed meanwhile
			a.Body = appendStatistics(a.Body, query.Named{Name: st.ID.Name, Model: m}, st)
		}
	}
	a.Body = append(a.Body, "]}"...)
	x.Answer(&a)
}

// appendStatistics appends an element of model_stats, with a comma before it unless it is the first. success and fail count the requests that
// address the function or version; the counts of a version beside them are of all that it has done, in whatever protocol it was asked.
//
// A query that the cache has answered waited no time in the queue. Triton counts it there, and perf_analyzer finds the version that it measures by this count.
func appendStatistics(dst []byte, n query.Named, st api.ModelStatistics) []byte {
	st.Queue.Count += st.CacheHits
	queries, succeeded, failed := n.Requests()
	if n.Function == nil {
		queries = st.Succeeded
	}
	if dst[len(dst)-1] != '[' {
		dst = append(dst, ',')
	}
	dst = tensorjson.AppendString(append(dst, `{"name":`...), st.ID.Name)
	dst = tensorjson.AppendString(append(dst, `,"version":`...), st.ID.Version)
	dst = strconv.AppendUint(append(dst, `,"inference_count":`...), queries, 10)
	dst = strconv.AppendUint(append(dst, `,"execution_count":`...), st.Batches, 10)
	dst = append(dst, `,"inference_stats":{`...)
	for i, part := range [...]struct {
		name string
		d    api.Durations
	}{
		{"success", succeeded}, {"fail", failed}, {"queue", st.Queue}, {"compute_infer", st.Evaluation}, {"cache_hit", api.Durations{Count: st.CacheHits}},
		{"cache_miss", api.Durations{Count: st.CacheMisses}},
		// Their time is in compute_infer: inputs are written and outputs read in the memory of the replica. The counts of the three are equal in Triton, and
		// perf_analyzer demands it.
		{"compute_input", api.Durations{Count: st.Evaluation.Count}}, {"compute_output", api.Durations{Count: st.Evaluation.Count}},
	} {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), part.name...), `":{"count":`...)
		dst = strconv.AppendUint(dst, part.d.Count, 10)
		dst = append(strconv.AppendUint(append(dst, `,"ns":`...), part.d.Nanos, 10), '}')
	}
	return append(dst, `},"batch_stats":[]}`...)
}

// config serves GET …/config: what of a declaration the protocol has words for.
func (s *service) config(x dialect.Exchange) {
	n, err := s.path.Named(x.Param("model"), x.Param("version"))
	if err != nil {
		s.fails(x, err)
		return
	}
	batch := s.path.MaxBatch()
	if n.Model.Streams {
		batch = 1
	}
	var a dialect.Answer
	a.Reset(200)
	a.Body = tensorjson.AppendString(append(a.Body, `{"name":`...), n.Name)
	a.Body = append(a.Body, `,"platform":"xebec","backend":"xebec","max_batch_size":`...)
	a.Body = strconv.AppendInt(a.Body, int64(batch), 10)
	a.Body = appendConfigs(append(a.Body, `,"input":[`...), n.Model.Signature.Inputs)
	a.Body = appendConfigs(append(a.Body, `],"output":[`...), n.Model.Signature.Outputs)
	a.Body = append(a.Body, `],"dynamic_batching":{},"model_transaction_policy":{"decoupled":`...)
	a.Body = append(strconv.AppendBool(a.Body, n.Model.Streams), "}}"...)
	x.Answer(&a)
}

func appendConfigs(dst []byte, specs []api.TensorSpec) []byte {
	for i := range specs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = tensorjson.AppendString(append(dst, `{"name":`...), specs[i].Name)
		kind := specs[i].DType.OIP()
		if specs[i].DType.Variable() {
			kind = "STRING"
		}
		dst = append(append(append(dst, `,"data_type":"TYPE_`...), kind...), `","dims":[`...)
		for k, d := range specs[i].Shape {
			if k > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendInt(dst, d, 10)
		}
		dst = append(dst, "]}"...)
	}
	return dst
}
