package apptest

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xebec-serving/xebec/api/tensorflowpb"
)

// TestServingOverGRPC: a client of TensorFlow Serving asks a real model and a function by gRPC, and gets what the function answers natively.
func TestServingOverGRPC(t *testing.T) {
	t.Parallel()
	g, _ := serveStreams(t, "--grpc-listen", "127.0.0.1:0", "--config", manifest(t, numbers("echo4")))
	g.awaitReplicas("echo4", 1)
	ctx, conn := bounded(t), g.dialGRPC()
	client, models := tensorflowpb.NewPredictionServiceClient(conn), tensorflowpb.NewModelServiceClient(conn)
	dims := func(sizes ...int64) *tensorflowpb.TensorShapeProto {
		s := &tensorflowpb.TensorShapeProto{}
		for _, n := range sizes {
			s.Dim = append(s.Dim, &tensorflowpb.TensorShapeProto_Dim{Size: n})
		}
		return s
	}
	for _, name := range []string{"echo4", "echo4@1"} {
		r := &tensorflowpb.PredictRequest{ModelSpec: &tensorflowpb.ModelSpec{Name: name}, Inputs: map[string]*tensorflowpb.TensorProto{
			"input": {Dtype: tensorflowpb.DataType_DT_FLOAT, FloatVal: []float32{1, 2, 3, 4, 5, 6, 7, 8}, TensorShape: dims(2, 4)},
		}}
		var md metadata.MD
		a, err := client.Predict(ctx, r, grpc.Header(&md))
		if err != nil {
			t.Fatal(err)
		}
		out := a.Outputs["output"]
		if !slices.Equal(out.GetFloatVal(), r.Inputs["input"].FloatVal) || len(out.GetTensorShape().GetDim()) != 2 || out.TensorShape.Dim[0].Size != 2 {
			t.Errorf("%s: %v", name, a)
		}
		if function := name == "echo4"; function != (len(md.Get("xebec-query-id")) == 1) || function && strings.Join(md.Get("xebec-models"), "") != "echo4@1" {
			t.Errorf("%s: metadata %v", name, md)
		}
		if s, err := models.GetModelStatus(ctx, &tensorflowpb.GetModelStatusRequest{ModelSpec: r.ModelSpec}); err != nil || len(s.ModelVersionStatus) != 1 || s.ModelVersionStatus[0].State != tensorflowpb.ModelVersionStatus_AVAILABLE || s.ModelVersionStatus[0].Version != 1 {
			t.Errorf("%s: %v %v", name, s, err)
		}
	}
	_, err := models.HandleReloadConfigRequest(ctx, &tensorflowpb.ReloadConfigRequest{Config: &tensorflowpb.ModelServerConfig{Config: &tensorflowpb.ModelServerConfig_ModelConfigList{
		ModelConfigList: &tensorflowpb.ModelConfigList{Config: []*tensorflowpb.ModelConfig{{Name: "echo4"}}},
	}}})
	if s := status.Convert(err); s.Code() != codes.Unimplemented || !strings.Contains(s.Message(), "--model-control") {
		t.Errorf("without --model-control: %v", err)
	}
}
