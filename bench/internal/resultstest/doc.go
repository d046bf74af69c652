// Package resultstest helps to test the measuring programs' reports: the lines of the Markdown, the JSON that is read again, and the text in
// the figures.
package resultstest
