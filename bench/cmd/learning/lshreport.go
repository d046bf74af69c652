package main

import (
	"fmt"
	"strings"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

// Markdown implements results.Report.
func (l *LSH) Markdown() string {
	var b strings.Builder
	b.WriteString(l.Heading("An approximate cache"))
	if l.Quick {
		b.WriteString(results.Smoke)
	}
	fmt.Fprintf(&b, "A prediction cache whose key is a locality-sensitive hash of the input, played over data sets in one process, without a gateway: %d orders, with other hyperplanes in each; the answers are those of scikit-learn's kernel SVM. Percent, with intervals of 95 %% of Student's t over the orders. *Other* is the part of the hits that are not the model's answer, *more errors* the difference of the error rates with and without the cache. How: ../METHOD.md. Taken in %.0f s.\n", l.Orders, l.Seconds)
	b.WriteString("\n## Hits and errors\n\n")
	results.TableHead(&b, "data", "queries", "exact key: hits", "bits", "hits", "other", "more errors")
	for i := range l.Sets {
		s := &l.Sets[i]
		for _, h := range s.Hashes {
			other := "–"
			if h.Hits.Value > 0 {
				other = percent(h.Other)
			}
			fmt.Fprintf(&b, "| %s, %s | %d | %s | %d | %s | %s | %s |\n", s.Name, s.Stream, s.Queries, percent(s.Exact), h.Bits, percent(h.Hits), other, signed(h.More))
		}
	}
	b.WriteString("\n## Cost of a key, ns\n\nOn one core, in Go without vector instructions; the exact key is the standard library's hash of bytes.\n\n")
	results.TableHead(&b, "values of a query", "bits", "ns")
	for _, c := range l.Costs {
		bits := fmt.Sprint(c.Bits)
		if c.Bits == 0 {
			bits = "exact"
		}
		fmt.Fprintf(&b, "| %d | %s | %.0f |\n", c.Values, bits, c.Nanos)
	}
	return b.String()
}
