// Package tfserving is the REST API of TensorFlow Serving, which KServe's first protocol shares: predict, classify, regress, metadata and the status of
// versions, below /v1/models.
//
// A request gives its tensors by rows ({"instances": […]} → {"predictions": […]}) or by columns ({"inputs": …} → {"outputs": …}), never both. A row is
// one query: the value of the only input, or an object from name to value. A column is a tensor whose first dimension is the query; a tensor without this
// dimension is one query, whose outputs have none either. A single tensor omits its name. Text and bytes are one type in TensorFlow, so strings and
// {"b64": "…"} are accepted for both; outputs named *_bytes are {"b64": "…"}, other bytes are strings where they are UTF-8. NaN, Infinity and -Infinity
// are bare tokens in both directions.
//
// classify and regress take examples: objects of features, each a value or a list. A classification has a label and a score for each class; see [Reading].
//
// Functions are models. What a function says beside its outputs (the query's id, confidence, default) is in header fields, since the protocol has no place
// for it. "parameters" of a request, which KServe has, are options of the call or go to the model.
//
// What is not ours to do is said: explain is 501, signatures other than serving_default are refused by name.
//
// Where to read next: dialect.go has the routes, request.go and example.go the parsers, response.go the answers, status.go the documents.
package tfserving
