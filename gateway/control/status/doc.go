// Package status describes the gateway: models, functions, the scheduler's plan, logs, readiness, and the snapshot of counters
// that a scrape shows. A [Reader] reads the other packages of gateway/control and changes nothing.
//
// What a description says of an object and its revision is of one moment: both are read with the catalog's lock held. Nothing that
// may block (a worker that is asked for its accuracy, a store) is waited for under that lock.
package status
