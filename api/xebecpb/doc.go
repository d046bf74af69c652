// Package xebecpb has the messages and the service of functions over gRPC, xebec.v1.Functions, for Go programs that call a gateway: [NewFunctionsClient]
// makes a client. It is generated from api/proto/xebec/v1/functions.proto, which describes each field, by `.ci/proto.sh`; nothing in it is written by hand
// but this text.
package xebecpb
