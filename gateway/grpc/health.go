package grpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/xebec-serving/xebec/api/inferencepb"
	"github.com/xebec-serving/xebec/api/tensorflowpb"
	"github.com/xebec-serving/xebec/api/xebecpb"
)

// health is grpc.health.v1.Health. The whole server is "", a service has its name, and so has each function and model.
type health struct {
	healthpb.UnimplementedHealthServer
	server *Server
}

// services are those that are ready when the server is.
var services = []string{
	"", pb.GRPCInferenceService_ServiceDesc.ServiceName, xebecpb.Functions_ServiceDesc.ServiceName,
	tensorflowpb.PredictionService_ServiceDesc.ServiceName, tensorflowpb.ModelService_ServiceDesc.ServiceName,
}

func (h *health) status(service string) (healthpb.HealthCheckResponse_ServingStatus, error) {
	for _, s := range services {
		if s == service {
			return serving(h.server.ready()), nil
		}
	}
	n, err := h.server.cfg.Path.Named(service, "")
	if err != nil {
		return healthpb.HealthCheckResponse_SERVICE_UNKNOWN, err
	}
	return serving(n.Available() && !h.server.leaving.Load()), nil
}

func serving(yes bool) healthpb.HealthCheckResponse_ServingStatus {
	if yes {
		return healthpb.HealthCheckResponse_SERVING
	}
	return healthpb.HealthCheckResponse_NOT_SERVING
}

func (h *health) Check(ctx context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	s, err := h.status(r.Service)
	if err != nil {
		return nil, fail(ctx, failed(err), nil)
	}
	return &healthpb.HealthCheckResponse{Status: s}, nil
}

func (h *health) List(context.Context, *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	list := &healthpb.HealthListResponse{Statuses: map[string]*healthpb.HealthCheckResponse{}}
	for _, s := range services {
		list.Statuses[s] = &healthpb.HealthCheckResponse{Status: serving(h.server.ready())}
	}
	return list, nil
}

func (h *health) Watch(r *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	last := healthpb.HealthCheckResponse_ServingStatus(-1)
	for {
		now, _ := h.status(r.Service) // of a service that is not there, too: it may come
		if now != last {
			if err := stream.Send(&healthpb.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
			last = now
		}
		if h.server.leaving.Load() {
			return nil // a watcher would keep the server from ending
		}
		select {
		case <-t.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
