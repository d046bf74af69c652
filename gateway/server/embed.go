package server

import (
	"context"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/control/declarations"
	"github.com/xebec-serving/xebec/gateway/control/deployment"
	"github.com/xebec-serving/xebec/gateway/control/learning"
	"github.com/xebec-serving/xebec/gateway/control/status"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/dialect/native"
	"github.com/xebec-serving/xebec/gateway/query"
)

// control is what the admin API drives.
type control struct {
	*declarations.Declarations
	*status.Reader
	*learning.Learning
	host *deployment.Host
}

// Inspect implements [admin.Control].
func (c control) Inspect(ctx context.Context, dir string, command []string, emit func(api.LogLine) error) error {
	return c.host.Inspect(ctx, dir, command, emit)
}

// Apply declares everything in the set, or nothing, and returns one change for each object, models first. With dryRun it only
// judges. seen is at which revisions the caller has seen objects: if one is at another revision, nothing is changed and the error
// is an api.Conflict. A manifest is read by manifest.Decode.
func (s *Server) Apply(ctx context.Context, set *manifest.Set, dryRun bool, seen ...api.ObjectRevision) ([]api.Change, error) {
	return s.declared.Apply(ctx, set, dryRun, seen...)
}

// Delete removes a function, all versions of a model or one of them, or a model's traffic rules. The error is an api.Conflict while
// functions need it.
func (s *Server) Delete(ctx context.Context, kind api.Kind, id api.ModelID, seen ...api.ObjectRevision) ([]api.Change, error) {
	return s.declared.Delete(ctx, kind, id, seen...)
}

// Ready reports whether everything that is declared has been read and queries are accepted, and if not why. At the start it also
// waits until every model that wants replicas has its first one or has failed to get it. Models that sleep, and models that fail
// later, do not make a gateway unready, unless a function of Config.ReadyRequires needs them.
func (s *Server) Ready() (ready bool, why string) { return s.status.Ready() }

// Problems lists functions and model versions that are declared and cannot answer.
func (s *Server) Problems() []api.ReadinessProblem { return s.status.Problems() }

// Models describes all versions of a model, or of all models where name is empty.
func (s *Server) Models(ctx context.Context, name string) ([]api.ModelStatus, error) {
	return s.status.Models(ctx, name)
}

// Functions describes a function, or all where name is empty.
func (s *Server) Functions(ctx context.Context, name string) ([]api.FunctionStatus, error) {
	return s.status.Functions(ctx, name)
}

// Predict answers one query of a function, on the same way as a query over HTTP: through the policy, the cache, traffic rules and
// statistics. inputs has one value for each input of the function's signature (api.Numbers makes one). If the answer's Code is not
// api.OK, there is no prediction, and Default has the JSON of the function's default output if it has one. The error says that the
// query is malformed, that there is no such function, or that ctx ended.
func (s *Server) Predict(ctx context.Context, function string, inputs ...api.Value) (query.Answer, error) {
	answers, err := s.PredictBatch(ctx, &query.Queries{Function: function, Inputs: [][]api.Value{inputs}}, nil)
	if err != nil {
		return query.Answer{}, err
	}
	return answers[0], nil
}

// Local answers messages of the native protocol, as the function port does, without a connection.
func (s *Server) Local() *dialect.Local { return dialect.NewLocal(s.path, native.Dialect{}) }

// PredictBatch answers several queries of a function or of a model, which are likely to share a batch. The answers are in the order of
// the queries, in dst where it has room.
func (s *Server) PredictBatch(ctx context.Context, queries *query.Queries, dst []query.Answer) ([]query.Answer, error) {
	return s.path.Do(ctx, queries, dst)
}

// Feedback tells a function how good one of its answers was. Query ids are in answers; with an input, the feedback is about the last
// prediction of that input instead.
func (s *Server) Feedback(function string, f query.Feedback, input []api.Value) (query.Outcome, error) {
	return s.path.Feedback(function, f, input)
}
