// Package manifest reads and writes an operator's declarations: models, functions, and how models' queries are divided between
// their versions, as YAML or JSON documents.
//
//	kind: Model
//	name: digits-svm
//	version: "1"
//	inputs:  [{name: input, dtype: float32, shape: [64]}]    # of one query; -1 = any
//	outputs: [{name: output, dtype: int64, shape: []}]
//	run: {command: [python, model.py]}
//	warmup: {queries: warmup.jsonl}                          # evaluated before it gets traffic
//	validate: {queries: holdout.jsonl, min_accuracy: 0.9}
//	---
//	kind: Function
//	name: digits
//	models: [digits-svm]
//	slo: 20ms
//	default: -1
//	---
//	kind: Function
//	name: digits-of-three
//	models: [digits-svm, digits-logreg, digits-forest]
//	policy: {name: exp4, eta: 0.1}                           # or its name alone
//	loss: zero-one                                           # or {kind: absolute, scale: 10, tolerance: 1}
//	shadow: {digits-nn: 0.05}                                # evaluates one query in twenty, answers none
//	default: -1
//	min_confidence: 0.6
//	log: {sample: 0.1}                                       # one query in ten, for the inference log
//	---
//	kind: Traffic
//	name: digits-svm                                         # the model's
//	versions: {latest: 2}                                    # or all, or {specific: ["1", "2"]}
//	serving: "1"
//	split: {version: "2", percent: 10}                       # or a rollout: {version: "2", policy: exp3}
//	labels: {stable: "1", canary: "2"}                       # digits-svm@canary is digits-svm@2
//
// # What it promises
//
// To the author of a file: nothing is guessed and nothing is ignored. An unknown field, a duplicate field, a number without its unit, a
// null, an anchor or a tag is an error. Every error names the file, the line and the column, the field, and what was expected. Decoding
// reports up to [MaxErrors] errors at once, so that the author can fix them in one pass.
//
// To the gateway: a decoded [Set] has its defaults filled in and is valid by itself. References to things outside of the set (a model that
// is not in it, a policy's parameters) are for the gateway to check. The set keeps the positions of its fields, so that an error that the
// gateway finds has a line too ([Set.Refuse]), and a tool that sent the set finds the lines in the files that it read ([Set.Relocate]).
//
// To programs that edit what a gateway has: [DecodeRequest], for the gateway, also reads the revision at which an object was read. Files
// have none.
//
// To scripts: decoding the output of [Set.YAML] or [Set.JSON] gives the same set, models' directories included, in any directory.
//
// # What it never does
//
// It never follows a reference, reads a variable, or runs anything. Its memory is bounded by a small multiple of [MaxBytes]: it does not
// support aliases, the usual way to make a small file large.
//
// # Where to read next
//
// decode.go turns documents into objects; fields.go reads them by the tags of the specs; object.go has the strict readers of fields; json.go reads JSON with positions,
// because YAML's own reader accepts most of JSON but not all of it. Package api defines the meaning of the fields: spec_model.go,
// spec_quality.go, spec_function.go, spec_policy.go and spec_traffic.go.
package manifest
