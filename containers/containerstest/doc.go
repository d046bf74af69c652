// Package containerstest has a runtime for tests of what is above replicas: how many there are, when they start, and
// when they end.
//
// It promises these tests replicas that start at once and exit when they are signalled. A replica runs no program and
// never connects, so no query is answered. Tests of runtimes start real replicas instead. The product does not import it.
package containerstest
