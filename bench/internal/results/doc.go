// Package results holds what the measuring programs share in their reports: medians, quantiles and spreads over rounds, the words for a
// target that was met or missed, and the files of a report, which are Markdown for people, JSON for programs and SVG figures.
//
// The package measures nothing and knows no benchmark. A program has its own report type, which embeds Taken, and its own tables.
package results
