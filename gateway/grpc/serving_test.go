package grpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/tensorflowpb"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// tensorOf is a tensor of float32 values.
func tensorOf(values []float32, shape ...int64) *tensorflowpb.TensorProto {
	t := &tensorflowpb.TensorProto{Dtype: tensorflowpb.DataType_DT_FLOAT, FloatVal: values, TensorShape: &tensorflowpb.TensorShapeProto{}}
	for _, d := range shape {
		t.TensorShape.Dim = append(t.TensorShape.Dim, &tensorflowpb.TensorShapeProto_Dim{Size: d})
	}
	return t
}

func predict(name string, t *tensorflowpb.TensorProto) *tensorflowpb.PredictRequest {
	return &tensorflowpb.PredictRequest{ModelSpec: &tensorflowpb.ModelSpec{Name: name}, Inputs: map[string]*tensorflowpb.TensorProto{"input": t}}
}

// example has float features of one input.
func example(name string, values ...float32) *tensorflowpb.Example {
	return &tensorflowpb.Example{Features: &tensorflowpb.Features{Feature: map[string]*tensorflowpb.Feature{
		name: {Kind: &tensorflowpb.Feature_FloatList{FloatList: &tensorflowpb.FloatList{Value: values}}},
	}}}
}

func examples(list ...*tensorflowpb.Example) *tensorflowpb.Input {
	return &tensorflowpb.Input{Kind: &tensorflowpb.Input_ExampleList{ExampleList: &tensorflowpb.ExampleList{Examples: list}}}
}

func TestServingPredict(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	client := tensorflowpb.NewPredictionServiceClient(f.conn)
	content := tensorOf(nil, 2, 4)
	content.TensorContent = floats(1, 1, 1, 1, 2, 2, 2, 2)
	for _, c := range []struct {
		name  string
		input *tensorflowpb.TensorProto
		rank  int
		want  []int64
	}{
		{"by content", content, 1, []int64{4, 8}},
		{"by values", tensorOf([]float32{1, 1, 1, 1, 2, 2, 2, 2}, 2, 4), 1, []int64{4, 8}},
		{"the last value goes on", tensorOf([]float32{1, 3}, 2, 4), 1, []int64{10, 12}},
		{"no values are zeros", tensorOf(nil, 1, 4), 1, []int64{0}},
		{"without a batch dimension", tensorOf([]float32{1, 2, 3, 4}, 4), 0, []int64{10}},
	} {
		a, err := client.Predict(f.ctx(), predict("m", c.input))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		out := a.Outputs["output"]
		if out.GetDtype() != tensorflowpb.DataType_DT_INT64 || !slices.Equal(out.GetInt64Val(), c.want) || len(out.TensorShape.Dim) != c.rank {
			t.Errorf("%s: %v", c.name, a)
		}
		if s := a.ModelSpec; s.GetName() != "m" || s.GetVersion().GetValue() != 1 || s.GetSignatureName() != "serving_default" {
			t.Errorf("%s: %v", c.name, s)
		}
	}
	for _, spec := range []*tensorflowpb.ModelSpec{
		{Name: "m", VersionChoice: &tensorflowpb.ModelSpec_Version{Version: wrapperspb.Int64(1)}, SignatureName: "serving_default"},
		{Name: "m", VersionChoice: &tensorflowpb.ModelSpec_VersionLabel{VersionLabel: "stable"}},
		{Name: "m@1"},
	} {
		r := predict("m", content)
		r.ModelSpec, r.OutputFilter = spec, []string{"output"}
		if a, err := client.Predict(f.ctx(), r); err != nil || len(a.Outputs) != 1 {
			t.Errorf("%v: %v %v", spec, a, err)
		}
	}
}

// TestServingFunction: a function is a model; header metadata has what its answers say beside the outputs.
func TestServingFunction(t *testing.T) {
	fails := false
	f := serve(t, querytest.Floats4, func(it *scheduler.Item) {
		if fails {
			querytest.End(it, api.ModelError)
			return
		}
		querytest.Sum(it)
	})
	client := tensorflowpb.NewPredictionServiceClient(f.conn)
	var md metadata.MD
	get := func(key string) string { return strings.Join(md.Get(key), "|") }
	r := predict("f", tensorOf([]float32{1, 2, 3, 4}, 1, 4))
	a, err := client.Predict(f.ctx(), r, grpc.Header(&md))
	if err != nil || a.ModelSpec.Name != "f" || a.ModelSpec.VersionChoice != nil || get("xebec-query-id") == "" || get("xebec-default") != "false" || get("xebec-models") != "m@1" || get("xebec-confidence") != "1" {
		t.Errorf("%v %v %v", a, md, err)
	}
	fails = true
	a, err = client.Predict(f.ctx(), r, grpc.Header(&md))
	if err != nil || get("xebec-default") != "true" || a.Outputs["output"].GetInt64Val()[0] != -1 || get("xebec-default-explanation") != api.ModelError.Reason() {
		t.Errorf("%v %v %v", a, md, err)
	}
	_, err = client.Predict(f.ctx(), predict("g", r.Inputs["input"]))
	code(t, err, codes.Internal, api.ModelError.Reason())
}

func TestServingErrors(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	client := tensorflowpb.NewPredictionServiceClient(f.conn)
	good := tensorOf([]float32{1}, 1, 4)
	for _, c := range []struct {
		change func(r *tensorflowpb.PredictRequest)
		want   codes.Code
		text   string
	}{
		{func(r *tensorflowpb.PredictRequest) { r.ModelSpec = nil }, codes.InvalidArgument, "model_spec.name is missing"},
		{func(r *tensorflowpb.PredictRequest) { r.ModelSpec.Name = "x" }, codes.NotFound, "Servable not found for request: Latest(x)"},
		{func(r *tensorflowpb.PredictRequest) {
			r.ModelSpec.VersionChoice = &tensorflowpb.ModelSpec_Version{Version: wrapperspb.Int64(7)}
		}, codes.NotFound, "Servable not found for request: Specific(m, 7)"},
		{func(r *tensorflowpb.PredictRequest) { r.ModelSpec.SignatureName = "x" }, codes.InvalidArgument, `Serving signature name: "x" not found in signature def`},
		{func(r *tensorflowpb.PredictRequest) { r.OutputFilter = []string{"x"} }, codes.InvalidArgument, "output tensor alias not found in signature"},
		{func(r *tensorflowpb.PredictRequest) { r.Inputs = nil }, codes.InvalidArgument, `the input "input" (float32[4]) is missing`},
		{func(r *tensorflowpb.PredictRequest) { r.Inputs["y"] = good }, codes.InvalidArgument, `there is no input "y"`},
		{func(r *tensorflowpb.PredictRequest) { r.Inputs["input"] = tensorOf(nil, 9, 4) }, codes.InvalidArgument, "expected 1 to 8 queries"},
	} {
		r := predict("m", good)
		c.change(r)
		_, err := client.Predict(f.ctx(), r)
		code(t, err, c.want, c.text)
	}
	_, err := client.MultiInference(f.ctx(), &tensorflowpb.MultiInferenceRequest{})
	code(t, err, codes.Unimplemented, "a model has one")
	_, err = client.Predict(metadata.AppendToOutgoingContext(f.ctx(), "xebec-slo-ms", "x"), predict("m", good))
	code(t, err, codes.InvalidArgument, "Xebec-Slo-Ms")
}

func TestServingClassifyAndRegress(t *testing.T) {
	sig := api.Signature{
		Inputs: []api.TensorSpec{{Name: "x", DType: api.Float32, Shape: []int64{2}}},
		Outputs: []api.TensorSpec{
			{Name: "scores", DType: api.Float32, Shape: []int64{2}}, {Name: "classes", DType: api.String, Shape: []int64{2}}, {Name: "outputs", DType: api.Float64},
		},
	}
	f := serve(t, sig, func(it *scheduler.Item) {
		labels := []byte("\x03\x00\x00\x00cat\x03\x00\x00\x00dog")
		number, _ := binary.Append(nil, binary.LittleEndian, 0.25)
		querytest.End(it, api.OK, bytes.Clone(it.Inputs[0].Data), labels, number)
	})
	client := tensorflowpb.NewPredictionServiceClient(f.conn)
	spec := &tensorflowpb.ModelSpec{Name: "m"}
	a, err := client.Classify(f.ctx(), &tensorflowpb.ClassificationRequest{ModelSpec: spec, Input: examples(example("x", 1, 0.5), example("x", 0, 2))})
	if err != nil || len(a.Result.Classifications) != 2 {
		t.Fatalf("%v %v", a, err)
	}
	if c := a.Result.Classifications[0].Classes; len(c) != 2 || c[0].Label != "cat" || c[0].Score != 1 || c[1].Label != "dog" || c[1].Score != 0.5 {
		t.Errorf("%v", c)
	}
	context := &tensorflowpb.Input{Kind: &tensorflowpb.Input_ExampleListWithContext{ExampleListWithContext: &tensorflowpb.ExampleListWithContext{
		Examples: []*tensorflowpb.Example{{}, example("x", 5, 6)}, Context: example("x", 3, 4),
	}}}
	b, err := client.Regress(f.ctx(), &tensorflowpb.RegressionRequest{ModelSpec: spec, Input: context})
	if err != nil || len(b.Result.Regressions) != 2 || b.Result.Regressions[1].Value != 0.25 || b.ModelSpec.Name != "m" {
		t.Errorf("%v %v", b, err)
	}
	_, err = client.Regress(f.ctx(), &tensorflowpb.RegressionRequest{ModelSpec: spec, Input: examples(example("x", 1))})
	code(t, err, codes.InvalidArgument, `examples[0]: feature "x": 1 values: expected 2 for the shape [2]`)
	_, err = client.Regress(f.ctx(), &tensorflowpb.RegressionRequest{ModelSpec: spec})
	code(t, err, codes.InvalidArgument, "expected example_list")
}

// TestServingRoom: a short message with large inputs is refused before they are written.
func TestServingRoom(t *testing.T) {
	sig := api.Signature{Inputs: []api.TensorSpec{{Name: "input", DType: api.Float32, Shape: []int64{-1}}}, Outputs: querytest.Floats4.Outputs}
	f := serve(t, sig, func(it *scheduler.Item) {
		querytest.End(it, api.OK, querytest.Int64(int64(len(it.Inputs[0].Data))))
	}, func(c *Config, _ *query.Model) { c.Limits.MessageBytes = 1 << 20 })
	client := tensorflowpb.NewPredictionServiceClient(f.conn)
	_, err := client.Predict(f.ctx(), predict("m", tensorOf([]float32{1}, 8, 1<<20)))
	code(t, err, codes.InvalidArgument, "expected at most 1048576")
	a, err := client.Predict(f.ctx(), predict("m", tensorOf([]float32{1}, 1, 1<<18)))
	if err != nil || a.Outputs["output"].GetInt64Val()[0] != 1<<20 {
		t.Errorf("%v %v", a, err)
	}
	f.memory.limit.Store(1 << 19)
	_, err = client.Predict(f.ctx(), predict("m", tensorOf([]float32{1}, 1, 1<<18)))
	code(t, err, codes.ResourceExhausted, "--body-memory")
}

func TestServingDocuments(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	client, models := tensorflowpb.NewPredictionServiceClient(f.conn), tensorflowpb.NewModelServiceClient(f.conn)
	r := &tensorflowpb.GetModelMetadataRequest{ModelSpec: &tensorflowpb.ModelSpec{Name: "m"}, MetadataField: []string{"signature_def"}}
	a, err := client.GetModelMetadata(f.ctx(), r)
	if err != nil || a.ModelSpec.GetVersion().GetValue() != 1 {
		t.Fatalf("%v %v", a, err)
	}
	var defs tensorflowpb.SignatureDefMap
	if err := a.Metadata["signature_def"].UnmarshalTo(&defs); err != nil {
		t.Fatal(err)
	}
	in := defs.SignatureDef["serving_default"].GetInputs()["input"]
	if in.GetName() != "input:0" || in.GetDtype() != tensorflowpb.DataType_DT_FLOAT || in.TensorShape.Dim[0].Size != -1 || in.TensorShape.Dim[1].Size != 4 {
		t.Errorf("%v", &defs)
	}
	r.MetadataField = []string{"x"}
	_, err = client.GetModelMetadata(f.ctx(), r)
	code(t, err, codes.InvalidArgument, `Metadata field "x" is not supported`)
	for name, want := range map[string]tensorflowpb.ModelVersionStatus_State{"m": tensorflowpb.ModelVersionStatus_AVAILABLE, "f": tensorflowpb.ModelVersionStatus_AVAILABLE} {
		s, err := models.GetModelStatus(f.ctx(), &tensorflowpb.GetModelStatusRequest{ModelSpec: &tensorflowpb.ModelSpec{Name: name}})
		if err != nil || len(s.ModelVersionStatus) != 1 || s.ModelVersionStatus[0].Version != 1 || s.ModelVersionStatus[0].State != want || s.ModelVersionStatus[0].Status.ErrorCode != tensorflowpb.Code_OK {
			t.Errorf("%s: %v %v", name, s, err)
		}
	}
	_, err = models.GetModelStatus(f.ctx(), &tensorflowpb.GetModelStatusRequest{ModelSpec: &tensorflowpb.ModelSpec{Name: "x"}})
	code(t, err, codes.NotFound, "Servable not found for request: Latest(x)")
	if s := versionStatus("blue", stateLoading, "it starts"); s.Version != 0 || s.Status.ErrorMessage != "version blue: it starts" || s.Status.ErrorCode != tensorflowpb.Code_UNAVAILABLE {
		t.Errorf("%v", s)
	}
}

// TestServingReload: the models of the list are loaded, the others are not, for a client with a token; all else of a configuration is refused.
func TestServingReload(t *testing.T) {
	var calls []string
	f := serve(t, querytest.Floats4, querytest.Sum, func(c *Config, _ *query.Model) {
		c.Models = func(context.Context, string) ([]api.ModelStatus, error) {
			return []api.ModelStatus{{Spec: api.ModelSpec{Name: "m", Version: "1"}, Serving: true}, {Spec: api.ModelSpec{Name: "other", Version: "1"}, Serving: true}, {Spec: api.ModelSpec{Name: "other", Version: "2"}}}, nil
		}
		c.SetLoaded = func(_ context.Context, authorization, model string, loaded bool) error {
			if authorization != "Bearer right" {
				return api.Errorf(api.Forbidden, "it needs a token")
			}
			if loaded {
				model = "+" + model
			}
			if calls = append(calls, model); model == "+other" {
				return errors.New("defect")
			}
			return nil
		}
	})
	client := tensorflowpb.NewModelServiceClient(f.conn)
	reload := func(token string, list ...*tensorflowpb.ModelConfig) error {
		_, err := client.HandleReloadConfigRequest(metadata.AppendToOutgoingContext(f.ctx(), "authorization", token), &tensorflowpb.ReloadConfigRequest{
			Config: &tensorflowpb.ModelServerConfig{Config: &tensorflowpb.ModelServerConfig_ModelConfigList{ModelConfigList: &tensorflowpb.ModelConfigList{Config: list}}},
		})
		return err
	}
	m := &tensorflowpb.ModelConfig{Name: "m"}
	code(t, reload("Bearer wrong", m), codes.PermissionDenied, "it needs a token")
	code(t, reload("Bearer right", m, &tensorflowpb.ModelConfig{Name: "x"}), codes.NotFound, `config[1].name: no model "x": nothing was changed`)
	code(t, reload("Bearer right", &tensorflowpb.ModelConfig{Name: "m", BasePath: "/models/m"}), codes.Unimplemented, "expected a name only")
	policy := &tensorflowpb.ModelConfig{Name: "m"}
	policy.ProtoReflect().SetUnknown([]byte{7<<3 | 2, 0}) // model_version_policy
	code(t, reload("Bearer right", policy), codes.Unimplemented, "expected a name only")
	if len(calls) > 0 {
		t.Errorf("refused requests have changed %v", calls)
	}
	if err := reload("Bearer right", m); err != nil || !slices.Equal(calls, []string{"+m", "other"}) {
		t.Errorf("%v %v", calls, err)
	}
	code(t, reload("Bearer right", m, &tensorflowpb.ModelConfig{Name: "other"}), codes.Internal, "models that were loaded or unloaded before it: 1")
	_, err := client.HandleReloadConfigRequest(f.ctx(), &tensorflowpb.ReloadConfigRequest{})
	code(t, err, codes.InvalidArgument, "expected model_config_list")
}
