// Package secret reads the small files that a gateway trusts: tokens, keys, certificates, and the authorities of clients'
// certificates. They are checked (a regular file that belongs to the right user, with a mode that keeps others out) and read
// again when they change, so a renewal needs no restart. While a changed file cannot be used, what was read last stays in force.
//
// The package knows no port and no protocol.
package secret
