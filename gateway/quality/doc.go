// Package quality is what a new version of a model has to prove before it gets traffic: recorded queries, extreme inputs, and the
// judgement of the answers.
//
// It promises to the server, which has the queries evaluated and acts on what comes out:
//
//   - [ReadCases] takes what the HTTP API takes. A line of a file is {"input": …}, perhaps with a "label", and is read by the same
//     parsers as a caller's request and feedback; a third member, which a misspelt "label" would be, is an error. Nothing is left out in
//     silence: a line that is wrong, a file that is too long, end in an error that names file and line.
//   - [Extremes] are inputs that the gateway would let a caller send, at the ends of what the model's signature allows. A model may refuse
//     them; it must survive them. What no caller can send is not among them, for no model should be kept from traffic by what it will
//     never see: a shape that the signature forbids never is, and a byte other than 0 and 1 for a bool is where a raw body can carry it.
//   - [Judge] passes nothing below its thresholds. A query without an answer counts as answered wrongly. A version that answered nothing at
//     all, or that was compared with nothing although there is something to compare with, does not pass: nothing has been proven. When it
//     does not pass, the reason says what was asked, what came, and shows up to three lines of the file.
//
// Accuracy is the part of the labelled queries that were answered with their label; difference is the part of those queries that the
// serving version answered which the new one answered otherwise, or not at all. Both are quotients of two integers, compared as such with
// the number in the manifest: 7 of 100 is 0.07.
//
// It evaluates nothing, starts nothing, keeps nothing and knows no clock; it reads the one file that it is told to.
//
// Limits: [MaxCases] queries and [MaxBytes] of text and again of tensors in a file, a line of at most [MaxLineBytes]; extremes of
// [MaxExtremes] in number and a few hundred megabytes together. Two answers are compared by elements, not by meaning: a list of classes in
// another order is another answer, and a tolerance is the same for all elements of all outputs.
//
// Where to read next: cases.go, extremes.go, judge.go.
package quality
