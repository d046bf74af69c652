// Package native is the gateway's own dialect: Clipper's REST interface, extended. Clients call functions,
//
//	POST /{function}/predict     {"input": X} or {"input_batch": [X, …]}, or the input itself as the body
//	POST /{function}/feedback    {"query_id": N, "label": Y} and other forms; also a batch of them
//	POST /{function}/update      the same, by Clipper's name
//	GET  /{function}             what it takes and answers, as JSON Schemas
//	GET  /docs/functions         the names of all functions
//
// and get JSON. A function always answers within its latency objective if it has a default output: what went wrong is then said in
// default_explanation, with status 200. Otherwise the code of the query decides the status.
//
// # The way of a request
//
// native.go parses the body into a pooled call and submits it. raw.go reads bodies that are the input itself, large ones
// without a copy. answer.go renders the answer when the path calls back, accept.go the one that is the output itself. stream.go renders streams, part by
// part. feedback.go serves feedback, for which no
// request is submitted; describe.go describes a function. api/spec/openapi.yaml describes all of it.
//
// # What it never does
//
// It decides nothing about queries: package query chooses the models, combines answers and learns from feedback. It uses
// package tensorjson for JSON, and sees no connection.
package native
