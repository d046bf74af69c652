// Package gateway runs a real `xebec serve` for a measuring program and queries its admin port: declared models, the version that answers,
// replicas, metrics and memory.
//
// A gateway keeps its files in a folder. A folder that the caller names outlives the gateway, which can be killed and started again from
// what it stored there. The only thing the package measures is the time of a start. Package bench/internal/server runs the process; this
// package adds what is specific to xebec.
package gateway
