package server

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/xebec-serving/xebec/api/inferencepb"
	"github.com/xebec-serving/xebec/api/tensorflowpb"
	"github.com/xebec-serving/xebec/api/xebecpb"
)

func dialGRPC(t *testing.T, addr string, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// TestGRPC: functions answer at the gRPC port, with the function port's certificate if it has one, and the function port says where that is.
func TestGRPC(t *testing.T) {
	secure, pool := secrets(t)
	for name, c := range map[string]struct {
		cfg   Config
		creds credentials.TransportCredentials
	}{
		"clear text": {Config{}, insecure.NewCredentials()},
		"TLS":        {Config{Cert: secure.AdminCert, Key: secure.AdminKey}, credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "gateway.example"})},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.GRPC = "127.0.0.1:0"
			s, _, addr := alive(t, c.cfg)
			mustApply(t, s, sleepyVersion("1", "min: 1, max: 1"), askM)
			until(t, "a replica", func() bool { return deployed(s, "m", "1").Ready() == 1 })
			conn := dialGRPC(t, s.GRPC(), c.creds)
			p, err := xebecpb.NewFunctionsClient(conn).Predict(within(t), &xebecpb.PredictRequest{Function: "m", Inputs: []*xebecpb.Tensor{{Numbers: make([]float64, 4)}}})
			if err != nil || len(p.Models) != 1 || p.Models[0] != "m@1" {
				t.Errorf("%v %v", p, err)
			}
			index, err := pb.NewGRPCInferenceServiceClient(conn).RepositoryIndex(within(t), &pb.RepositoryIndexRequest{})
			if err != nil || len(index.Models) != 2 {
				t.Errorf("%v %v", index, err)
			}
			_, err = pb.NewGRPCInferenceServiceClient(dialGRPC(t, addr, c.creds)).ModelInfer(within(t), &pb.ModelInferRequest{ModelName: "m", RawInputContents: [][]byte{make([]byte, 1<<20)}})
			if st := status.Convert(err); st.Code() != codes.Unimplemented || !strings.Contains(st.Message(), s.GRPC()) {
				t.Errorf("the function port answers %v", err)
			}
			if g, err := s.status.Gateway(within(t)); err != nil || g.GRPC != s.GRPC() {
				t.Errorf("the status has %q, %v", g.GRPC, err)
			}
		})
	}
}

// TestWhereGRPCIs: an address that is given must be free; the default one need not be.
func TestWhereGRPCIs(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s := New(Config{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", GRPC: taken.Addr().String(), Runtime: newIdle()})
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "--grpc-listen chooses another address") {
		t.Errorf("started with a port that is taken: %v", err)
	}
	if ln, err := net.Listen("tcp", DefaultGRPC); err == nil {
		defer ln.Close()
	} // else it is taken
	for address, want := range map[string]string{"": "is taken", NoPort: "xebec serve --grpc-listen"} {
		s, _, _ := started(t, Config{GRPC: address})
		if s.GRPC() != "" || !strings.Contains(s.whereGRPC(), want) {
			t.Errorf("GRPC %q: served at %q, callers are told: %s", address, s.GRPC(), s.whereGRPC())
		}
	}
}

// TestModelControlOverGRPC: a client with an admin token loads and unloads models, if the gateway allows it. Others do not.
func TestModelControlOverGRPC(t *testing.T) {
	secure, _ := secrets(t)
	s, rt, _ := alive(t, Config{GRPC: "127.0.0.1:0", ModelControl: true, AdminTokenFile: secure.AdminTokenFile})
	mustApply(t, s, sleepyVersion("1", "min: 0, max: 1, idle: 1h"), askM)
	until(t, "m to sleep", serves(s, "1"))
	oip := pb.NewGRPCInferenceServiceClient(dialGRPC(t, s.GRPC(), insecure.NewCredentials()))
	for _, token := range []string{"", "Bearer wrong"} {
		_, err := oip.RepositoryModelLoad(metadata.AppendToOutgoingContext(within(t), "authorization", token), &pb.RepositoryModelLoadRequest{ModelName: "m"})
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("with the token %q: %v", token, err)
		}
	}
	ctx := metadata.AppendToOutgoingContext(within(t), "authorization", "Bearer "+adminToken)
	if _, err := oip.RepositoryModelLoad(ctx, &pb.RepositoryModelLoadRequest{ModelName: "m"}); err != nil {
		t.Fatal(err)
	}
	until(t, "a replica", launched(rt, "1", 1))
	if _, err := oip.RepositoryModelUnload(ctx, &pb.RepositoryModelUnloadRequest{ModelName: "m", Parameters: map[string]*pb.ModelRepositoryParameter{"unload_dependents": {}}}); err != nil {
		t.Error(err)
	}
	file := map[string]*pb.ModelRepositoryParameter{"file:model.py": {ParameterChoice: &pb.ModelRepositoryParameter_BytesParam{BytesParam: []byte("x")}}}
	if _, err := oip.RepositoryModelLoad(ctx, &pb.RepositoryModelLoadRequest{ModelName: "m", Parameters: file}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a client has overridden a file: %v", err)
	}
	serving := tensorflowpb.NewModelServiceClient(dialGRPC(t, s.GRPC(), insecure.NewCredentials()))
	reload := func(ctx context.Context, models ...*tensorflowpb.ModelConfig) error {
		list := &tensorflowpb.ModelServerConfig_ModelConfigList{ModelConfigList: &tensorflowpb.ModelConfigList{Config: models}}
		_, err := serving.HandleReloadConfigRequest(ctx, &tensorflowpb.ReloadConfigRequest{Config: &tensorflowpb.ModelServerConfig{Config: list}})
		return err
	}
	m := &tensorflowpb.ModelConfig{Name: "m"}
	if err := reload(within(t), m); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a client without a token has reloaded: %v", err)
	}
	for want, list := range [][]*tensorflowpb.ModelConfig{nil, {m}, nil} {
		want &= 1
		if err := reload(ctx, list...); err != nil {
			t.Fatal(err)
		}
		models, err := s.Models(within(t), "m")
		if err != nil || len(models) != 1 || models[0].Spec.Replicas.Min != want {
			t.Errorf("after %v: %+v %v", list, models, err)
		}
	}
}
