package admin

import (
	"context"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
)

// Control is what the admin API drives: the gateway's composition implements it. Every method may be called from several
// goroutines at once. Errors that are an [api.Error] reach the client with their code and message; any other error is
// answered as internal, with its text, for only operators reach this port.
type Control interface {
	// Apply declares everything in the set, or nothing: the specs have their defaults and are valid each by itself, and
	// references between them are for Apply to check. It returns one change for each object, models first, in the order of
	// the set. With dryRun it changes nothing and says what would become of it.
	//
	// To Apply, Delete, Promote and Rollback seen is at which revisions the caller has seen objects. They are judged under the same lock
	// as the change is made: where one is at another revision nothing is changed, and the error is an api.Conflict that wraps a [api.StaleError].
	Apply(ctx context.Context, set *manifest.Set, dryRun bool, seen ...api.ObjectRevision) ([]api.Change, error)
	// Deploy declares the model of a model directory (an absolute path) and a function of its name, unless there is one.
	Deploy(ctx context.Context, dir string) ([]api.Change, error)
	// Models returns all versions of all models, or, with a name, those of that model together with their last log lines;
	// api.NotFound when there is none of that name. The caller owns what it gets.
	Models(ctx context.Context, name string) ([]api.ModelStatus, error)
	// Functions returns all functions, or the one of that name; api.NotFound when there is none.
	Functions(ctx context.Context, name string) ([]api.FunctionStatus, error)
	// Gateway describes the gateway itself.
	Gateway(ctx context.Context) (api.GatewayStatus, error)
	// Scheduler describes the plan in force and what it follows from, functions, models and devices by name. The caller owns
	// what it gets.
	Scheduler(ctx context.Context) (api.SchedulerStatus, error)
	// Delete removes a function, all versions of a model, or with id.Version one of them; api.Conflict when functions still
	// need it.
	Delete(ctx context.Context, kind api.Kind, id api.ModelID, seen ...api.ObjectRevision) ([]api.Change, error)
	// Traffic returns how the queries of models are divided between their versions: of all models that have a rule, or of the one of that
	// name, which need not have any; api.NotFound when there is no such model. Rules are declared by Apply, and deleted by Delete with
	// api.KindTraffic.
	Traffic(ctx context.Context, model string) ([]api.TrafficStatus, error)
	// Promote makes a version the one that serves, and ends the model's split, shadow, rollout and rollback. An empty version means that of
	// the rollout, split or shadow there is, else the newest one.
	Promote(ctx context.Context, model, version string, seen ...api.ObjectRevision) ([]api.Change, error)
	// Rollback makes an older version serve, and keeps the one that serves now from being loaded until a newer one than that is. An empty
	// version means the one that served before, else the next older one. reason is for people and may be empty.
	Rollback(ctx context.Context, model, to, reason string, seen ...api.ObjectRevision) ([]api.Change, error)
	// History returns the last changes of what is declared, newest first, at most limit; of one model or function, or with an empty name of
	// all.
	History(ctx context.Context, name string, limit int) ([]api.HistoryEvent, error)
	// Export returns everything that is declared and kept, so that to apply it brings it back. Models that a watched directory declares
	// are not in it.
	Export(ctx context.Context) (*manifest.Set, error)
	// Logs hands the last q.Lines lines of a model's replicas to emit, oldest first, and with q.Follow goes on until ctx ends
	// or emit fails. It returns emit's error, and nil when ctx ended it or the gateway stops. emit is called from Logs' own goroutine only; it
	// writes to the client and may block, and Logs drops lines rather than hold up a replica meanwhile.
	Logs(ctx context.Context, q api.LogQuery, emit func(api.LogLine) error) error
}
