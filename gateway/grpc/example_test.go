package grpc_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xebec-serving/xebec/api/xebecpb"
)

// A Go program that asks the demo's function digits. deploy/guide/grpc.md shows it.
func Example() {
	conn, err := grpc.NewClient("127.0.0.1:1339", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	functions := xebecpb.NewFunctionsClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	p, err := functions.Predict(ctx, &xebecpb.PredictRequest{
		Function: "digits",
		Inputs:   []*xebecpb.Tensor{{Numbers: make([]float64, 64)}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.QueryId, p.Default, p.Confidence, len(p.Outputs))
}
