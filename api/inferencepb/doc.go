// Package inferencepb has the messages and the service of the Open Inference Protocol over gRPC, for Go programs that call a gateway. It is generated
// from api/proto/inference.proto by `.ci/proto.sh`; nothing in it is written by hand but this text.
//
// Another package with the messages of package "inference" cannot be linked into the same program: the protobuf library refuses two files that define the
// same names.
package inferencepb
