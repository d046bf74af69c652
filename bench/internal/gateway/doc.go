// Package gateway runs a real `xebec serve` for a measuring program and asks its admin port: what is declared, which version answers, how
// many replicas there are. It also reads how much memory the gateway holds.
//
// A gateway keeps its files in a folder of the caller's, which outlives it: it can be killed and started again from what it has kept.
// The package measures nothing itself but how long a start takes. Package bench/internal/server has the process, this one what is
// particular to xebec.
package gateway
