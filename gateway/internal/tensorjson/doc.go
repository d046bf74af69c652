// Package tensorjson converts between JSON and tensors, for every HTTP dialect that uses JSON.
//
// It makes two promises to the dialects. First, it is exact. What it accepts is JSON (RFC 8259: UTF-8, no trailing
// commas, no leading zeros), and numbers are converted as strconv does: a float is the nearest of its type to the
// decimal, float16 included; an integer is in range and integral. Second, it is cheap: numbers go directly from text to
// the little-endian data of an [api.Value], without a tree, without an interface for each element and, in steady state,
// without an allocation.
//
// # Reading
//
// [Reader] is the scanner. It reads one text front to back, and the caller asks for what it expects: a member, a
// string, a tensor. [Request] is the native dialect, {"input": X} or {"input_batch": [X, …]}; package oip builds the
// Open Inference Protocol on the same reader. [Feedback] reads feedback on predictions; a label has the form of an
// answer, so its BYTES are {"b64": "…"}. A tensor is nested arrays or one flat array in row-major order. A BYTES element is a
// string (its UTF-8) or {"b64": "…"}. Storage comes from the caller's [Sink], is reused, and is where the caller bounds
// the number of queries. The caller bounds the length of a body. An element takes at least two bytes of text and at
// most eight of data, so this also bounds the memory.
//
// Unknown members are skipped but must be JSON; a [Request] refuses those that other protocols use for its inputs. A duplicate known member is an error, because parsers differ in which
// one they use. Nesting is bounded by [MaxDepth]. Errors are *api.Error with code InvalidArgument and name the position
// by path and byte: input_batch[3].image[17]: expected a number, found "abc" (byte 214).
//
// # Writing
//
// [AppendValue] writes one query's output: floats with the fewest digits that read back as the same number of their
// type, NaN and the infinities as null (JSON has neither), BYTES as
// {"b64": "…"}, canonical base64. What it writes reads back as the same
// value.
//
// # What it never does
//
// It starts nothing and waits for nothing. It knows no HTTP, and no model beyond the given specs. It keeps no reference
// to a body after the next one.
//
// Where to read next: request.go, rows.go and feedback.go for the dialect, value.go for matching shapes, plain.go for the
// loops in which the time of a tensor is spent (plain_amd64.s has the same in vector instructions), number.go for converting decimals to floats and why that is correct.
package tensorjson
