// Package runner is the frame that the measuring programs share. It parses flags, runs the parts that -only names, orders the contenders
// of a round, waits, logs progress to stderr, and publishes the report.
//
// A program built on it keeps only what it measures: its settings, its measurements and its tables. A typical main parses flags with
// ParseFlags, runs its Parts, and passes its report to Publish. The report's arithmetic and files are in package results, its figures in
// package plots, and the gateway under test in package gateway.
package runner
