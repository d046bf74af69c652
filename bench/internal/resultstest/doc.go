// Package resultstest has what the tests of the measuring programs' reports share: that a report in Markdown has the lines that
// it should have, and that what was kept as JSON can be read again.
package resultstest
