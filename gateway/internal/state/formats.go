package state

import (
	"context"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// A format is a version of the layout of a store. A file and a Redis database store the name of their format.
type format struct {
	adds string // what is new in the format
	// A row that changes only one kind of store repeats the name of the other kind, which then has no step.
	file, redis string
	// fileStep converts a file from the format in the row before. It runs in the transaction that opens the file.
	fileStep func(tx *bolt.Tx) error
	// redisStep converts a Redis database from the format in the row before. See [redisStep] for its duties.
	redisStep redisStep
}

// formats lists every format that a released program has written, oldest first. This program reads and writes the last one and
// converts older ones on first use. Every change of the layout is a new row.
var formats = []format{
	{adds: "states of policies", file: "1", redis: "1", fileStep: beginFile},
	// In Redis, objects are new keys beside the old ones, with a format key of their own.
	{adds: "declared objects and their history", file: "2", redis: "1", fileStep: addObjects},
}

// fileFormats returns the rows in which the file's format changes.
func fileFormats(all []format) []format {
	return slices.CompactFunc(slices.Clone(all), func(a, b format) bool { return a.file == b.file })
}

// redisFormats returns the rows in which the format in Redis changes.
func redisFormats(all []format) []format {
	return slices.CompactFunc(slices.Clone(all), func(a, b format) bool { return a.redis == b.redis })
}

// A redisStep converts a Redis database to the format of its row. While it runs, the database has neither format, so no gateway reads or
// writes it. A step can be interrupted at any point and then starts again from the beginning, and two gateways may run it at once. So it
// works through [redisMigration.run], each call of which is atomic, and its scripts must recognise and skip what is already
// converted. It must keep the writers' fields of policies' states ("w:"): without them a retried update counts twice.
type redisStep func(ctx context.Context, m *redisMigration) error
