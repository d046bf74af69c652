// Package tensorflowpb has the messages and the services of TensorFlow Serving over gRPC, for Go programs that call a gateway. It is generated from the files
// of api/proto/tensorflow by `.ci/proto.sh`; nothing in it is written by hand but this text.
//
// Another package with the messages of packages "tensorflow" and "tensorflow.serving" cannot be linked into the same program: the protobuf library refuses
// two files that define the same names.
package tensorflowpb
