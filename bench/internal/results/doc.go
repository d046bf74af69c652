// Package results is what the measuring programs share when they report: medians and spreads over rounds, the words for a
// target that was met or missed, and a report's two files, Markdown for people and JSON for programs.
//
// It measures nothing and knows no benchmark: a program has its own report, which embeds Taken, and its own tables.
package results
