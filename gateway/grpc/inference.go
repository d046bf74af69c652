package grpc

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"

	"github.com/xebec-serving/xebec/api"
	pb "github.com/xebec-serving/xebec/api/inferencepb"
	"github.com/xebec-serving/xebec/gateway/query"
)

// inference serves the methods of the Open Inference Protocol that carry no tensors.
type inference struct {
	pb.UnimplementedGRPCInferenceServiceServer
	server *Server
}

// inferenceService is the service, with the two methods that carry tensors as bytes.
func (s *Server) inferenceService() *grpc.ServiceDesc {
	d := pb.GRPCInferenceService_ServiceDesc
	d.Methods, d.Streams = slices.Clone(d.Methods), slices.Clone(d.Streams)
	for i := range d.Methods {
		m := &d.Methods[i]
		if m.MethodName == "ModelInfer" {
			m.Handler = s.modelInfer
		}
	}
	for i := range d.Streams {
		d.Streams[i].Handler = s.modelStreamInfer
	}
	return &d
}

const platform = "xebec"

// extensions are the served extensions of the protocol.
var extensions = []string{"model_repository", "model_configuration", "statistics", "parameters", "sequence", "binary_tensor_data", "classification"}

func (i *inference) ServerLive(context.Context, *pb.ServerLiveRequest) (*pb.ServerLiveResponse, error) {
	return &pb.ServerLiveResponse{Live: true}, nil
}

func (i *inference) ServerReady(context.Context, *pb.ServerReadyRequest) (*pb.ServerReadyResponse, error) {
	return &pb.ServerReadyResponse{Ready: i.server.ready()}, nil
}

// ready reports whether clients should come.
func (s *Server) ready() bool {
	ready, _ := s.cfg.Ready()
	return ready && !s.leaving.Load()
}

func (i *inference) ServerMetadata(context.Context, *pb.ServerMetadataRequest) (*pb.ServerMetadataResponse, error) {
	return &pb.ServerMetadataResponse{Name: "xebec", Version: i.server.cfg.Version, Extensions: extensions}, nil
}

func (i *inference) ModelReady(ctx context.Context, r *pb.ModelReadyRequest) (*pb.ModelReadyResponse, error) {
	n, err := i.server.named(ctx, r.Name, r.Version)
	if err != nil {
		return nil, err
	}
	return &pb.ModelReadyResponse{Ready: n.Available()}, nil
}

// named finds a function or a model.
func (s *Server) named(ctx context.Context, name, version string) (query.Named, error) {
	n, err := s.cfg.Path.Named(name, version)
	if err != nil {
		return n, fail(ctx, failed(err), nil)
	}
	return n, nil
}

func (i *inference) ModelMetadata(ctx context.Context, r *pb.ModelMetadataRequest) (*pb.ModelMetadataResponse, error) {
	n, err := i.server.named(ctx, r.Name, r.Version)
	if err != nil {
		return nil, err
	}
	m := &pb.ModelMetadataResponse{Name: n.Name, Platform: platform, Inputs: metadataOf(n.Model.Signature.Inputs), Outputs: metadataOf(n.Model.Signature.Outputs)}
	if n.Function == nil {
		m.Name, m.Versions = n.Model.ID.Name, i.server.cfg.Path.Versions(n.Model.ID.Name)
	}
	return m, nil
}

// metadataOf has the tensors with the batch dimension -1 before their declared shapes.
func metadataOf(specs []api.TensorSpec) []*pb.ModelMetadataResponse_TensorMetadata {
	list := make([]*pb.ModelMetadataResponse_TensorMetadata, len(specs))
	for i := range specs {
		list[i] = &pb.ModelMetadataResponse_TensorMetadata{Name: specs[i].Name, Datatype: specs[i].DType.OIP(), Shape: append([]int64{-1}, specs[i].Shape...)}
	}
	return list
}

func (i *inference) ModelConfig(ctx context.Context, r *pb.ModelConfigRequest) (*pb.ModelConfigResponse, error) {
	n, err := i.server.named(ctx, r.Name, r.Version)
	if err != nil {
		return nil, err
	}
	sig := &n.Model.Signature
	c := &pb.ModelConfig{
		Name: n.Name, Platform: platform, Backend: platform, MaxBatchSize: int32(i.server.cfg.Path.MaxBatch()),
		SchedulingChoice: &pb.ModelConfig_DynamicBatching{DynamicBatching: &pb.ModelDynamicBatching{}},
	}
	if n.Function == nil {
		c.Name = n.Model.ID.Name
	}
	for k := range sig.Inputs {
		t := &sig.Inputs[k]
		c.Input = append(c.Input, &pb.ModelInput{Name: t.Name, DataType: configType(t.DType), Dims: t.Shape})
	}
	for k := range sig.Outputs {
		t := &sig.Outputs[k]
		c.Output = append(c.Output, &pb.ModelOutput{Name: t.Name, DataType: configType(t.DType), Dims: t.Shape})
	}
	if n.Model.Streams {
		c.ModelTransactionPolicy, c.MaxBatchSize = &pb.ModelTransactionPolicy{Decoupled: true}, 1
	}
	return &pb.ModelConfigResponse{Config: c}, nil
}

func configType(d api.DType) pb.DataType {
	if d.Variable() {
		return pb.DataType_TYPE_STRING
	}
	return pb.DataType(pb.DataType_value["TYPE_"+d.OIP()])
}

// The states of the protocol's index.
const (
	stateReady       = "READY"
	stateLoading     = "LOADING"
	stateUnloading   = "UNLOADING"
	stateUnavailable = "UNAVAILABLE"
)

func (i *inference) RepositoryIndex(ctx context.Context, r *pb.RepositoryIndexRequest) (*pb.RepositoryIndexResponse, error) {
	if r.RepositoryName != "" {
		return nil, unsupported(ctx, "repository_name: there is one repository, which has no name")
	}
	models, err := i.server.cfg.Models(ctx, "")
	if err != nil {
		return nil, fail(ctx, failed(err), nil)
	}
	index := &pb.RepositoryIndexResponse{}
	add := func(m *pb.RepositoryIndexResponse_ModelIndex) {
		if !r.Ready || m.State == stateReady {
			index.Models = append(index.Models, m)
		}
	}
	for _, n := range i.server.cfg.Path.Names() {
		if n.Function == nil {
			continue
		}
		m := &pb.RepositoryIndexResponse_ModelIndex{Name: n.Name, State: stateReady}
		if !n.Available() {
			m.State, m.Reason = stateUnavailable, "none of its models has a replica that is ready"
		}
		add(m)
	}
	for k := range models {
		m := &models[k]
		state, reason := indexState(m)
		add(&pb.RepositoryIndexResponse_ModelIndex{Name: m.Spec.Name, Version: m.Spec.Version, State: state, Reason: reason})
	}
	slices.SortFunc(index.Models, func(a, b *pb.RepositoryIndexResponse_ModelIndex) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), api.CompareVersions(a.Version, b.Version))
	})
	return index, nil
}

// indexState maps a version's phase. One that sleeps is ready: a query wakes it.
func indexState(m *api.ModelStatus) (state, reason string) {
	switch m.Version.Phase {
	case api.PhaseAvailable:
		switch m.State {
		case api.ModelReady, api.ModelDegraded, api.ModelIdle:
			return stateReady, ""
		case api.ModelStarting:
			return stateLoading, m.Version.Reason
		}
		return stateUnavailable, cmp.Or(m.Version.Reason, string(m.State))
	case api.PhaseLoading, api.PhaseValidating:
		return stateLoading, m.Version.Reason
	case api.PhaseDraining:
		return stateUnloading, m.Version.Reason
	}
	return stateUnavailable, cmp.Or(m.Version.Reason, "unloaded")
}

func (i *inference) ModelStatistics(ctx context.Context, r *pb.ModelStatisticsRequest) (*pb.ModelStatisticsResponse, error) {
	name, version := r.Name, r.Version
	stats := &pb.ModelStatisticsResponse{}
	if name == "" {
		for _, n := range i.server.cfg.Path.Names() {
			if n.Function != nil {
				stats.ModelStats = append(stats.ModelStats, statisticsOf(n, api.ModelStatistics{ID: api.ModelID{Name: n.Name}}))
			}
		}
	} else {
		n, err := i.server.named(ctx, name, version)
		if err != nil {
			return nil, err
		}
		if n.Function != nil {
			stats.ModelStats = append(stats.ModelStats, statisticsOf(n, api.ModelStatistics{ID: api.ModelID{Name: name}}))
			return stats, nil
		}
		name = n.Model.ID.Name
		if version != "" || r.Name != name { // a label, or name@version, means a version
			version = n.Model.ID.Version
		}
	}
	for _, st := range i.server.cfg.Statistics(name) {
		m, err := i.server.cfg.Path.Model(st.ID.Name, st.ID.Version)
		if err == nil && (version == "" || st.ID.Version == version) { // else it was removed meanwhile
			stats.ModelStats = append(stats.ModelStats, statisticsOf(query.Named{Name: st.ID.Name, Model: m}, st))
		}
	}
	return stats, nil
}

// statisticsOf counts as the REST port does: success and fail are requests that address the function or version, the rest is all that a version has done.
// A query that the cache has answered waited no time in the queue. Triton counts it there, and perf_analyzer finds the version that it measures by this count.
func statisticsOf(n query.Named, st api.ModelStatistics) *pb.ModelStatistics {
	queries, succeeded, failed := n.Requests()
	if n.Function == nil {
		queries = st.Succeeded
	}
	st.Queue.Count += st.CacheHits
	duration := func(d api.Durations) *pb.StatisticDuration { return &pb.StatisticDuration{Count: d.Count, Ns: d.Nanos} }
	return &pb.ModelStatistics{Name: st.ID.Name, Version: st.ID.Version, InferenceCount: queries, ExecutionCount: st.Batches, InferenceStats: &pb.InferStatistics{
		Success: duration(succeeded), Fail: duration(failed), Queue: duration(st.Queue), ComputeInfer: duration(st.Evaluation),
		CacheHit: duration(api.Durations{Count: st.CacheHits}), CacheMiss: duration(api.Durations{Count: st.CacheMisses}),
		ComputeInput: duration(api.Durations{Count: st.Evaluation.Count}), ComputeOutput: duration(api.Durations{Count: st.Evaluation.Count}), // their time is in compute_infer
	}}
}

// unsupported refuses what the protocol has and this port has not.
func unsupported(ctx context.Context, format string, args ...any) error {
	return fail(ctx, &failure{code: api.Unsupported, message: fmt.Sprintf(format, args...)}, nil)
}

func (i *inference) RepositoryModelLoad(ctx context.Context, r *pb.RepositoryModelLoadRequest) (*pb.RepositoryModelLoadResponse, error) {
	if err := i.setLoaded(ctx, r.RepositoryName, r.ModelName, r.Parameters, true); err != nil {
		return nil, err
	}
	return &pb.RepositoryModelLoadResponse{}, nil
}

func (i *inference) RepositoryModelUnload(ctx context.Context, r *pb.RepositoryModelUnloadRequest) (*pb.RepositoryModelUnloadResponse, error) {
	if err := i.setLoaded(ctx, r.RepositoryName, r.ModelName, r.Parameters, false); err != nil {
		return nil, err
	}
	return &pb.RepositoryModelUnloadResponse{}, nil
}

// setLoaded loads or unloads a model for a client that may. What a model is, clients do not decide.
func (i *inference) setLoaded(ctx context.Context, repository, model string, parameters map[string]*pb.ModelRepositoryParameter, loaded bool) error {
	if i.server.cfg.SetLoaded == nil {
		return unsupported(ctx, "models are not loaded and unloaded through this port: `xebec apply`, `xebec scale` and the admin API do that")
	}
	if repository != "" {
		return unsupported(ctx, "repository_name: there is one repository, which has no name")
	}
	for name := range parameters {
		if name != "unload_dependents" { // there are none
			return unsupported(ctx, "parameters.%.63s: clients load models as they are declared: `xebec apply` changes declarations", name)
		}
	}
	if err := i.server.cfg.SetLoaded(ctx, authorizationOf(ctx), model, loaded); err != nil {
		return fail(ctx, failed(err), nil)
	}
	return nil
}

const sharedMemory = "shared memory regions are not supported: a client that changes or shortens memory while the gateway reads it could end the gateway; send tensors in the request"

func (i *inference) SystemSharedMemoryStatus(ctx context.Context, _ *pb.SystemSharedMemoryStatusRequest) (*pb.SystemSharedMemoryStatusResponse, error) {
	return nil, unsupported(ctx, sharedMemory)
}

func (i *inference) SystemSharedMemoryRegister(ctx context.Context, _ *pb.SystemSharedMemoryRegisterRequest) (*pb.SystemSharedMemoryRegisterResponse, error) {
	return nil, unsupported(ctx, sharedMemory)
}

func (i *inference) SystemSharedMemoryUnregister(ctx context.Context, _ *pb.SystemSharedMemoryUnregisterRequest) (*pb.SystemSharedMemoryUnregisterResponse, error) {
	return nil, unsupported(ctx, sharedMemory)
}

const cudaMemory = "CUDA shared memory is not supported: the gateway uses no device memory; send tensors in the request"

func (i *inference) CudaSharedMemoryStatus(ctx context.Context, _ *pb.CudaSharedMemoryStatusRequest) (*pb.CudaSharedMemoryStatusResponse, error) {
	return nil, unsupported(ctx, cudaMemory)
}

func (i *inference) CudaSharedMemoryRegister(ctx context.Context, _ *pb.CudaSharedMemoryRegisterRequest) (*pb.CudaSharedMemoryRegisterResponse, error) {
	return nil, unsupported(ctx, cudaMemory)
}

func (i *inference) CudaSharedMemoryUnregister(ctx context.Context, _ *pb.CudaSharedMemoryUnregisterRequest) (*pb.CudaSharedMemoryUnregisterResponse, error) {
	return nil, unsupported(ctx, cudaMemory)
}

func (i *inference) TraceSetting(ctx context.Context, _ *pb.TraceSettingRequest) (*pb.TraceSettingResponse, error) {
	return nil, unsupported(ctx, "trace settings are not supported: calls pass their traceparent on to models, and the gateway keeps no traces of its own")
}

func (i *inference) LogSettings(ctx context.Context, _ *pb.LogSettingsRequest) (*pb.LogSettingsResponse, error) {
	return nil, unsupported(ctx, "log settings are not changed through this port: `xebec serve --log-level` sets them")
}
