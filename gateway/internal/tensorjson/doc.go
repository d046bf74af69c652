// Package tensorjson turns JSON into tensors and tensors into JSON, for every dialect of HTTP that speaks JSON.
//
// It promises two things to its callers, the dialects. What it accepts is JSON (RFC 8259: UTF-8, no trailing commas, no
// leading zeros) and holds exactly the numbers that were written: a float is the nearest of its type to the decimal, as
// strconv has it, float16 included; an integer is in range and integral. And it is cheap: numbers go straight from text
// into the little-endian data of an [api.Value], without a tree, without an interface per element and, in steady state,
// without an allocation.
//
// # Reading
//
// [Reader] is the scanner: it walks one text front to back and is asked for what the caller expects (a member, a string,
// a tensor). [Request] is the native dialect on top of it, {"input": X} or {"input_batch": [X, …]}; package oip builds
// the Open Inference Protocol from the same reader. [Feedback] reads what apps say of predictions afterwards; a label has the
// form of an answer, so its BYTES are base64. A tensor is nested arrays or one flat array in row-major order, a
// BYTES element is a string (its UTF-8) or {"b64": "…"}. Storage comes from the caller's [Sink] and is reused by
// appending to what is there; the sink is also where the number of queries is bounded. The length of a body is bounded
// by who reads it: an element costs two bytes of text and gives at most eight of data, so memory is bounded with it.
//
// Members that nobody asked for are skipped, but must be JSON; a known member that is there twice is refused, because
// parsers differ in which one they take. Nesting is bounded by [MaxDepth]. An error is an *api.Error with code
// InvalidArgument that names the place by path and by byte: input_batch[3].image[17]: expected a number, found "abc"
// (byte 214).
//
// # Writing
//
// [AppendValue] writes one query's output: floats with the fewest digits that read back as the same number of their own
// type, NaN and the infinities as null (JSON has neither), BYTES as base64. Read back, what it wrote is the same value.
//
// # What it never does
//
// It starts nothing, waits for nothing, knows no HTTP and no model beyond the specs it is handed, and keeps no reference
// to a body after the next one.
//
// Where to read next: request.go and feedback.go for the dialect, value.go for how shapes are matched, number.go for how
// decimals become floats, and why that is right.
package tensorjson
