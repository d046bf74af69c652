// Package manifest reads and writes what an operator declares: models, functions and how models' queries are divided between
// their versions, as YAML (or JSON) documents.
//
//	kind: Model
//	name: digits-svm
//	version: "1"
//	inputs:  [{name: input, dtype: float32, shape: [64]}]    # of one query; -1 = any
//	outputs: [{name: output, dtype: int64, shape: []}]
//	run: {command: [python, model.py]}
//	warmup: {queries: warmup.jsonl}                          # before it gets traffic
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
//	shadow: {digits-nn: 0.05}                                # sees one query in twenty, answers none
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
// To the person who wrote the file: nothing is guessed and nothing is dropped. An unknown field, a field that is there
// twice, a number without its unit, a null, an anchor or a tag is an error, and every error names the file, the line and
// the column, the field, and what was expected. Up to [MaxErrors] are reported at once, so that a file is not mended one
// run at a time.
//
// To the gateway: a [Set] that comes out of here has its defaults written out and is valid by itself. What it refers to
// outside of itself (a model that is not in the set, a policy's parameters) is for the gateway to check; the set remembers
// where its fields were written, so that what the gateway refuses is refused with the line too ([Set.Refuse]), and a tool
// that sent a set there finds the lines of the files it had read ([Set.Relocate]).
//
// To programs that edit what a gateway has: [DecodeRequest], for the gateway, also takes the revision at which an object was read. Files
// have none.
//
// To scripts: decoding what [Set.YAML] or [Set.JSON] wrote gives the same set again, models' directories included, from wherever
// in the file system.
//
// # What it never does
//
// It never follows a reference, reads a variable, or runs anything. It never takes more memory than a small multiple of
// [MaxBytes]: aliases, the usual way to make a small file large, do not exist here.
//
// # Where to read next
//
// decode.go turns documents into specs; object.go has the strict readers of fields; json.go reads JSON with positions,
// because YAML's own reader takes most of JSON but not all of it. The meaning of the fields is api's: spec_model.go,
// spec_quality.go, spec_function.go, spec_policy.go and spec_traffic.go.
package manifest
