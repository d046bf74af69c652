// Package learning shows users what policies have learned, over time, and lets them take it elsewhere, bring it back and begin again.
//
// # What it promises
//
//   - [Learning.ExportLearned] returns a function's states in a form that [Learning.ImportLearned] of this or another gateway accepts. The same
//     state is always the same text. An import into an empty gateway gives the same weights, to the last bit.
//   - An import replaces. States that do not fit the function's policy or candidates are refused, with what differs, and change nothing.
//   - [Learning.ResetLearned] lets the global state begin again from nothing, and contexts from the global state.
//   - [Learning.LearnedHistory] has samples of the global state: one for each hour in which something was learned, and one for each change of
//     candidates, import and reset. They are notes of the store (package state), at most [api.MaxLearnedSamples] of a function, and go with it.
//
// # How samples are taken
//
// [Learning.Run] looks at every function twice a minute. It takes the sample of an hour when the hour has ended, and another one when the
// candidates or the policy are not those of the last look. A function about which nothing was learned since its last sample gets none, so idle
// functions cost nothing. A sample of an hour is named by the hour: gateways that share a store replace each other's, which are equal but for
// what is on its way. Samples that the store does not take are lost. Without a store the history is the present.
//
// # What it never does
//
// It is not on the query path, and the history decides nothing.
package learning
