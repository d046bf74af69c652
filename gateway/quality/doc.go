// Package quality validates a new version of a model before it gets traffic. It reads recorded queries, makes extreme
// inputs, and judges the answers.
//
// The server evaluates the queries and acts on the result. The package promises it:
//
//   - [ReadCases] accepts what the HTTP API accepts. A line of a file is {"input": …}, optionally with a "label", and
//     is read by the parsers of requests and feedback. A third member, for example a misspelt "label", is an error.
//     Nothing is dropped silently: an invalid line or a file that is too long is an error that names file and line.
//   - [Extremes] are inputs at the limits of the model's signature that the gateway would let a caller send. A model
//     may refuse them but must survive them. Inputs that no caller can send are not included, because a model should
//     not be rejected for what it will never see. A shape that the signature forbids is never included; a bool byte
//     other than 0 and 1 is included only where a raw body can carry it.
//   - [Judge] passes nothing below its thresholds. A query without an answer counts as wrong. A version that answered
//     nothing does not pass, and neither does one that could be compared but was compared with nothing. If a version
//     does not pass, the reason says what was required and what was measured, and shows up to three lines of the file.
//
// Accuracy is the fraction of the labelled queries that were answered with their label. Difference is the fraction, of
// the queries that the serving version answered, that the new version answered differently or not at all. Both are
// quotients of two integers and are compared as such with the number in the manifest: 7 of 100 is 0.07.
//
// The package evaluates nothing, starts nothing, keeps nothing and reads no clock. It reads only the file that it is
// given.
//
// Limits: a file has at most [MaxCases] queries, [MaxBytes] of text and the same of tensors, and lines of at most
// [MaxLineBytes]. There are at most [MaxExtremes] extremes, which take a few hundred megabytes together. Answers are
// compared by element, not by meaning: a list of classes in another order is a different answer, and one tolerance
// applies to all elements of all outputs.
//
// Where to read next: cases.go, extremes.go, judge.go.
package quality
