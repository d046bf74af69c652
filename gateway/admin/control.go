package admin

import (
	"context"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
)

// Control is what the admin API calls; the server implements it. Every method must be safe for concurrent use. The
// client gets the code and message of an [api.Error]. Any other error is answered as internal, with its text, because
// only operators reach this port.
type Control interface {
	Learning
	// Apply declares everything in the set, or nothing. Each spec has its defaults and is valid on its own; Apply
	// checks references between them. It returns one change for each object, models first, in the order of the set.
	// With dryRun it changes nothing and returns what would change.
	//
	// For Apply, Delete, Promote and Rollback, seen has the revisions at which the caller has seen objects. They are
	// compared under the same lock as the change: if an object has another revision, nothing changes, and the error is
	// an api.Conflict that wraps a [api.StaleError].
	Apply(ctx context.Context, set *manifest.Set, dryRun bool, seen ...api.ObjectRevision) ([]api.Change, error)
	// Deploy declares the model of a model directory (an absolute path), and a function with its name unless there is
	// one.
	Deploy(ctx context.Context, q api.Deployment) ([]api.Change, error)
	// Inspect runs a command in a directory (an absolute path) as a replica of a model there would run. It passes what the
	// command writes to stderr to emit, and last the last line of its stdout. It returns emit's error, or says how the
	// command ended if it failed. emit is only called from Inspect's own goroutine, and may block.
	Inspect(ctx context.Context, dir string, command []string, emit func(api.LogLine) error) error
	// Models returns all versions of all models or, with a name, those of that model with their last log lines. The
	// error is api.NotFound if there is no such model, and here and below api.Unavailable if it may be declared where the
	// gateway has not read yet. The caller owns the result.
	Models(ctx context.Context, name string) ([]api.ModelStatus, error)
	// Functions returns all functions, or the one with that name. The error is api.NotFound if there is none.
	Functions(ctx context.Context, name string) ([]api.FunctionStatus, error)
	// Gateway describes the gateway itself.
	Gateway(ctx context.Context) (api.GatewayStatus, error)
	// Scheduler describes the current plan and its inputs, with functions, models and devices sorted by name. The
	// caller owns the result.
	Scheduler(ctx context.Context) (api.SchedulerStatus, error)
	// Delete removes a function, all versions of a model or, with id.Version, one of them. The error is api.Conflict if
	// functions still need it.
	Delete(ctx context.Context, kind api.Kind, id api.ModelID, seen ...api.ObjectRevision) ([]api.Change, error)
	// Traffic returns how the queries of models are divided between their versions: for all models that have a rule, or
	// for the named one, which need not have any. The error is api.NotFound if there is no such model. Rules are
	// declared with Apply, and deleted with Delete and api.KindTraffic.
	Traffic(ctx context.Context, model string) ([]api.TrafficStatus, error)
	// Promote makes a version the serving one, and ends the model's split, shadow, rollout and rollback. An empty
	// version means that of the rollout, split or shadow if there is one, otherwise the newest.
	Promote(ctx context.Context, model, version string, seen ...api.ObjectRevision) ([]api.Change, error)
	// Rollback makes an older version the serving one, and excludes the current one from loading until a newer version
	// serves. An empty version means the one that served before, otherwise the next older one. reason is for users and
	// may be empty.
	Rollback(ctx context.Context, model, to, reason string, seen ...api.ObjectRevision) ([]api.Change, error)
	// History returns the last changes of declarations, newest first and at most limit: those of one model or function,
	// or all if name is empty.
	History(ctx context.Context, name string, limit int) ([]api.HistoryEvent, error)
	// Export returns all stored declarations, so that applying them restores them. It does not include models of a
	// watched directory.
	Export(ctx context.Context) (*manifest.Set, error)
	// Logs passes the last q.Lines lines of a model's replicas to emit, oldest first. With q.Follow it continues until
	// ctx ends or emit fails. It returns emit's error, or nil if ctx ended or the gateway stops. emit is only called
	// from Logs' own goroutine. It writes to the client and may block; Logs drops lines rather than delay a replica.
	Logs(ctx context.Context, q api.LogQuery, emit func(api.LogLine) error) error
}
