package top

import (
	"context"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// Snapshot is what one poll of a gateway returned.
type Snapshot struct {
	At        time.Time
	Gateway   api.GatewayStatus
	Functions []api.FunctionStatus
	Models    []api.ModelStatus
	Traffic   []api.TrafficStatus
}

// A Poller takes a snapshot.
type Poller func(context.Context) (*Snapshot, error)

// Poll takes a snapshot. get reads one document of the admin API, such as /v1/models.
func Poll(ctx context.Context, get func(ctx context.Context, path string, into any) error, now func() time.Time) (*Snapshot, error) {
	var (
		s         Snapshot
		functions api.FunctionList
		models    api.ModelList
		traffic   api.TrafficList
	)
	for _, part := range []struct {
		path string
		into any
	}{{"/v1/describe/gateway", &s.Gateway}, {"/v1/functions", &functions}, {"/v1/models", &models}, {"/v1/traffic", &traffic}} {
		if err := get(ctx, part.path, part.into); err != nil {
			return nil, err
		}
	}
	s.At, s.Functions, s.Models, s.Traffic = now(), functions.Functions, models.Models, traffic.Traffic
	return &s, nil
}
