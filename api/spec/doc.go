// Package spec holds the specifications of what Xebec speaks: openapi.yaml for HTTP, worker.md for the worker protocol,
// and golden, the test vectors that every binding decodes.
//
// Programs get [OpenAPI], the description as it was when they were built. A gateway serves it at /openapi.yaml on both of
// its ports. The package never reads or interprets a specification: tests hold the code against it.
package spec

import _ "embed"

// OpenAPI is openapi.yaml. Callers must not change it.
//
//go:embed openapi.yaml
var OpenAPI []byte
