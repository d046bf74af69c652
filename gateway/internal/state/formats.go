package state

import (
	"context"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// A format is one version of the layout of a store. Its two names are what a file and a Redis server say of themselves.
type format struct {
	adds string // what the format has that the one before it had not
	// A row that changes only one kind of store repeats the name of the other kind, which then has no step.
	file, redis string
	// fileStep converts a file from the format in the row before. It runs in the transaction that opens the file.
	fileStep func(tx *bolt.Tx) error
	// redisStep converts a Redis database from the format in the row before. See [redisStep] for its duties.
	redisStep redisStep
}

// formats lists every format that a released program has written, oldest first. This program reads and writes the last one and
// converts older ones when it meets them. A change of what lies in a store is a new row.
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

// A redisStep converts a Redis database to the format of its row. Meanwhile the database has neither format, so no gateway reads or
// writes it. Steps can be interrupted at any point and start again from the beginning, and two gateways may run the same step at
// once. A step therefore does its work in [redisMigration.run], each call of which is atomic, and these scripts must recognise
// what is converted already and leave it as it is. The writers' fields of policies' states ("w:") must survive: without them an update
// that is sent again counts twice.
type redisStep func(ctx context.Context, m *redisMigration) error
