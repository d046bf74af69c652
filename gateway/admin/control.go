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
	Apply(ctx context.Context, set *manifest.Set, dryRun bool) ([]api.Change, error)
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
	Delete(ctx context.Context, kind api.Kind, id api.ModelID) ([]api.Change, error)
	// Logs hands the last q.Lines lines of a model's replicas to emit, oldest first, and with q.Follow goes on until ctx ends
	// or emit fails. It returns emit's error, and nil when ctx ended it or the gateway stops. emit is called from Logs' own goroutine only; it
	// writes to the client and may block, and Logs drops lines rather than hold up a replica meanwhile.
	Logs(ctx context.Context, q LogQuery, emit func(api.LogLine) error) error
}

// LogQuery says which lines of a model's logs are wanted.
type LogQuery struct {
	Model string
	// Version is empty for all versions.
	Version string
	// Lines is how many past lines are wanted, at most MaxLogLines.
	Lines int
	// Follow asks for the lines to come as well.
	Follow bool
}
