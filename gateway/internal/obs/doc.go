// Package obs counts what the gateway does, cheaply, and shows it to Prometheus.
//
// The query path adds to striped counters: no lock, no map, no label look-up for a query. Prometheus's own library renders what
// a scrape reads from them ([Collector]); the scheduler's histograms are read the same way. Names and units follow
// Prometheus's conventions: seconds, bytes, _total.
//
// Versions, traffic rules, drift and the inference log ([LifecycleSample]) are read from those who know of them at a scrape. Counts of
// a rule begin anew when it is set, which Prometheus takes for a restart of the counter. A latency that a decision is made from, and not only shown
// ([Latency]), is in buckets fine enough to compare two 99th percentiles.
//
// What happens seldom, feedback ([Learning], [Loss]), is counted by plain atomics; the cache and the policies' states count
// for themselves and are read at a scrape. Rows of functions that have had no feedback are left out: of ten thousand most
// never get any.
package obs
