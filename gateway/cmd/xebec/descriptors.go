package main

import (
	"syscall"

	"go.uber.org/zap"
)

const (
	// descriptorsOfConnection is what a client connection takes: its socket, and a duplicate that answers are written to.
	descriptorsOfConnection = 2
	// otherDescriptors is enough for the admin port's connections, replicas, the store and logs.
	otherDescriptors = 2048
	// fewDescriptors is about what a gateway, its store, logs and a few replicas have open without any client. With less, replicas
	// may not start.
	fewDescriptors = 128
)

// neededDescriptors is how many open files so many client connections need.
func neededDescriptors(connections int) uint64 {
	return uint64(connections)*descriptorsOfConnection + otherDescriptors
}

// connectionsWithin is how many client connections a limit of open files leaves room for, with half of a small limit for the rest.
func connectionsWithin(limit uint64) int {
	return max(1, int(limit-min(limit/2, otherDescriptors))/descriptorsOfConnection)
}

// fitConnections returns how many client connections to take: as many as wanted, or what the limit of open files leaves room for. The
// soft limit needs no raising: the Go runtime has raised it to the hard one before main, and gives the programs that it starts the
// original one.
//
// asked: the number was given, not the default. Then a limit that is too low is worth a warning.
func fitConnections(wanted int, asked bool, log *zap.Logger) int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		log.Warn("the limit of open files is not known", zap.Error(err))
		return wanted
	}
	return fitWithin(limit.Cur, wanted, asked, log)
}

func fitWithin(limit uint64, wanted int, asked bool, log *zap.Logger) int {
	if limit < fewDescriptors {
		log.Warn("the limit of open files is so low that replicas may not start: raise the hard limit (ulimit -Hn, LimitNOFILE)", zap.Uint64("limit", limit), zap.Int("expected", fewDescriptors))
	}
	if limit >= neededDescriptors(wanted) {
		return wanted
	}
	fit := min(wanted, connectionsWithin(limit))
	say := log.Info
	if asked {
		say = log.Warn
	}
	say("the limit of open files is too low for --max-connections, so fewer are taken: raise the hard limit (ulimit -Hn, LimitNOFILE), or give --max-connections what fits",
		zap.Int("max_connections", wanted), zap.Uint64("needs", neededDescriptors(wanted)), zap.Uint64("limit", limit), zap.Int("taken", fit))
	return fit
}
