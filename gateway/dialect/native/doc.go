// Package native is the gateway's own dialect: Clipper's REST interface, extended. Clients call functions,
//
//	POST /{function}/predict     {"input": X} or {"input_batch": [X, …]}, or the input itself as the body
//	POST /{function}/feedback    {"query_id": N, "label": Y} and other forms; also a batch of them
//	POST /{function}/update      the same, by Clipper's name
//
// and get JSON. A function always answers within its latency objective if it has a default output: what went wrong is then said in
// default_explanation, with status 200. Otherwise the code of the query decides the status.
//
// # The way of a request
//
// native.go parses the body into a pooled call and submits it. raw.go takes bodies that are the input itself; large ones are not
// copied. answer.go renders the answer when the path calls back. feedback.go is the way of feedback, which the path takes without
// submitting anything. api/spec/openapi.yaml describes all of it.
//
// # What it never does
//
// It decides nothing about queries: which models are asked, what an answer is and what feedback teaches is package query's. It knows
// JSON from package tensorjson, and no connection.
package native
