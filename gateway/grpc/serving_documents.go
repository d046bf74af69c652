package grpc

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xebec-serving/xebec/api"
	pb "github.com/xebec-serving/xebec/api/tensorflowpb"
	"github.com/xebec-serving/xebec/gateway/dialect/tfserving"
	"github.com/xebec-serving/xebec/gateway/grpc/tfwire"
	"github.com/xebec-serving/xebec/gateway/query"
)

// metadataField is the only metadata that a model has.
const metadataField = "signature_def"

// servable finds a function or a model.
func (s *Server) servable(ctx context.Context, spec *pb.ModelSpec) (query.Named, error) {
	name, version, err := addressOf(spec)
	if err != nil {
		return query.Named{}, fail(ctx, failed(err), nil)
	}
	n, err := s.cfg.Path.Named(name, version)
	if err != nil {
		return n, fail(ctx, failed(tfserving.NotFound(err, name, version)), nil)
	}
	return n, nil
}

func (p *prediction) GetModelMetadata(ctx context.Context, r *pb.GetModelMetadataRequest) (*pb.GetModelMetadataResponse, error) {
	if len(r.GetMetadataField()) == 0 {
		return nil, fail(ctx, &failure{code: api.InvalidArgument, message: fmt.Sprintf("metadata_field: expected %q", metadataField)}, nil)
	}
	for _, f := range r.GetMetadataField() {
		if f != metadataField {
			return nil, fail(ctx, &failure{code: api.InvalidArgument, message: fmt.Sprintf("metadata_field: Metadata field %.60q is not supported: expected %q", f, metadataField)}, nil)
		}
	}
	n, err := p.server.servable(ctx, r.GetModelSpec())
	if err != nil {
		return nil, err
	}
	def := &pb.SignatureDef{Inputs: infosOf(n.Model.Signature.Inputs), Outputs: infosOf(n.Model.Signature.Outputs), MethodName: "tensorflow/serving/predict"}
	packed, err := anypb.New(&pb.SignatureDefMap{SignatureDef: map[string]*pb.SignatureDef{tfserving.Signature: def}})
	if err != nil {
		return nil, fail(ctx, failed(err), nil)
	}
	spec := specOf(n.Name, n.Function, n.Model)
	spec.SignatureName = ""
	return &pb.GetModelMetadataResponse{ModelSpec: spec, Metadata: map[string]*anypb.Any{metadataField: packed}}, nil
}

// infosOf has the tensors with the batch dimension -1 before their declared shapes.
func infosOf(specs []api.TensorSpec) map[string]*pb.TensorInfo {
	infos := make(map[string]*pb.TensorInfo, len(specs))
	for i := range specs {
		shape := &pb.TensorShapeProto{Dim: []*pb.TensorShapeProto_Dim{{Size: -1}}}
		for _, d := range specs[i].Shape {
			shape.Dim = append(shape.Dim, &pb.TensorShapeProto_Dim{Size: d})
		}
		infos[specs[i].Name] = &pb.TensorInfo{Encoding: &pb.TensorInfo_Name{Name: specs[i].Name + ":0"}, Dtype: tfwire.DType(specs[i].DType), TensorShape: shape}
	}
	return infos
}

// modelService serves tensorflow.serving.ModelService.
type modelService struct {
	pb.UnimplementedModelServiceServer
	server *Server
}

// states are TensorFlow Serving's words for those of the index.
var states = map[string]pb.ModelVersionStatus_State{
	stateReady: pb.ModelVersionStatus_AVAILABLE, stateLoading: pb.ModelVersionStatus_LOADING, stateUnloading: pb.ModelVersionStatus_UNLOADING, stateUnavailable: pb.ModelVersionStatus_END,
}

// functionVersion stands for the version that functions do not have: clients wait until one is available.
const functionVersion = "1"

func (m *modelService) GetModelStatus(ctx context.Context, r *pb.GetModelStatusRequest) (*pb.GetModelStatusResponse, error) {
	n, err := m.server.servable(ctx, r.GetModelSpec())
	if err != nil {
		return nil, err
	}
	if n.Function != nil {
		if n.Available() {
			return &pb.GetModelStatusResponse{ModelVersionStatus: []*pb.ModelVersionStatus{versionStatus(functionVersion, stateReady, "")}}, nil
		}
		return &pb.GetModelStatusResponse{ModelVersionStatus: []*pb.ModelVersionStatus{versionStatus(functionVersion, stateLoading, "no model of the function has a replica that is ready")}}, nil
	}
	models, err := m.server.cfg.Models(ctx, n.Model.ID.Name)
	if err != nil {
		return nil, fail(ctx, failed(err), nil)
	}
	all := n.Name == n.Model.ID.Name && r.GetModelSpec().GetVersionChoice() == nil
	a := &pb.GetModelStatusResponse{}
	for i := range models {
		version := models[i].Spec.Version
		if !all && version != n.Model.ID.Version {
			continue
		}
		state, reason := indexState(&models[i])
		a.ModelVersionStatus = append(a.ModelVersionStatus, versionStatus(version, state, reason))
	}
	return a, nil
}

// versionStatus is the status of one version. The protocol has numbers only: a version of another name has 0, and its name in the message.
func versionStatus(version, state, reason string) *pb.ModelVersionStatus {
	s := &pb.ModelVersionStatus{State: states[state], Status: &pb.StatusProto{ErrorMessage: reason}}
	if state != stateReady && reason != "" {
		s.Status.ErrorCode = pb.Code_UNAVAILABLE
	}
	n, ok := versionNumber(version)
	if s.Version = n; !ok {
		s.Version = 0
		if s.Status.ErrorMessage = "version " + version; reason != "" {
			s.Status.ErrorMessage += ": " + reason
		}
	}
	return s
}

// HandleReloadConfigRequest loads the models of a list, and unloads the others, for a client that may. What a model is, clients do not decide.
func (m *modelService) HandleReloadConfigRequest(ctx context.Context, r *pb.ReloadConfigRequest) (*pb.ReloadConfigResponse, error) {
	s := m.server
	if s.cfg.SetLoaded == nil {
		return nil, unsupported(ctx, "models are not loaded and unloaded through this port: `xebec apply`, `xebec scale` and the admin API do that")
	}
	if _, listed := r.GetConfig().GetConfig().(*pb.ModelServerConfig_ModelConfigList); !listed {
		return nil, fail(ctx, &failure{code: api.InvalidArgument, message: "config: expected model_config_list, the models that are to be loaded"}, nil)
	}
	models, err := s.cfg.Models(ctx, "")
	if err != nil {
		return nil, fail(ctx, failed(err), nil)
	}
	var load []string
	for i, c := range r.GetConfig().GetModelConfigList().GetConfig() {
		where := fmt.Sprintf("config.model_config_list.config[%d]", i)
		if c.GetBasePath() != "" || c.GetModelPlatform() != "" || len(c.GetVersionLabels()) > 0 || len(c.ProtoReflect().GetUnknown()) > 0 {
			return nil, unsupported(ctx, "%s: expected a name only: clients load models as they are declared, and choose neither paths nor platforms, versions, labels and logs; `xebec apply` changes declarations", where)
		}
		if !slices.ContainsFunc(models, func(m api.ModelStatus) bool { return m.Spec.Name == c.GetName() }) {
			return nil, fail(ctx, &failure{code: api.NotFound, message: fmt.Sprintf("%s.name: no model %.63q: nothing was changed", where, c.GetName())}, nil)
		}
		if !slices.Contains(load, c.GetName()) {
			load = append(load, c.GetName())
		}
	}
	authorization := authorizationOf(ctx)
	changed := 0
	set := func(name string, loaded bool) error {
		err := s.cfg.SetLoaded(ctx, authorization, name, loaded)
		if err == nil {
			changed++
			return nil
		}
		f := failed(err)
		if changed > 0 {
			f.message = fmt.Sprintf("model %.63q: %s; models that were loaded or unloaded before it: %d", name, f.message, changed)
		}
		return fail(ctx, f, nil)
	}
	for _, name := range load {
		if err := set(name, true); err != nil {
			return nil, err
		}
	}
	for i := range models {
		if name := models[i].Spec.Name; models[i].Serving && !slices.Contains(load, name) {
			if err := set(name, false); err != nil {
				return nil, err
			}
		}
	}
	return &pb.ReloadConfigResponse{Status: &pb.StatusProto{}}, nil
}
