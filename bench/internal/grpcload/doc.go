// Package grpcload sends unary gRPC calls of the Open Inference Protocol to one server and measures the answers. It is the gRPC counterpart of
// package loadgen.
//
// Requests are encoded before the run and go out as they are; the caller decides what a right answer is, from its bytes. So the generator costs
// little beside grpc-go itself. It knows no server, starts none, and has a closed loop only.
package grpcload
