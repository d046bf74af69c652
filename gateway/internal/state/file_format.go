package state

import (
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// fileFormat is the version of all that lies in a file. A change of it comes with a migration.
const fileFormat = "2"

// The bucket of what is true of the whole file.
var (
	metaBucket = []byte("xebec")
	formatKey  = []byte("format")
	headKey    = []byte("head") // the encoding of a [head]
)

// migrations leads from each format that there has been to the next one. A step runs in the transaction that opens the file: a file
// has either format, whole, whenever the machine stops.
var migrations = map[string]struct {
	to  string
	run func(tx *bolt.Tx) error
}{
	"1": {"2", addObjects},
}

// bringToFormat makes a new file ours, brings an older one to the present format, and refuses a file that is not ours or newer. A new
// file begins as the oldest format, so that it cannot differ from one that was brought up.
func bringToFormat(tx *bolt.Tx) error {
	meta := tx.Bucket(metaBucket)
	if meta == nil {
		if name, _ := tx.Cursor().First(); name != nil {
			return errors.New("it is a bbolt file that another program has made: name another file")
		}
		if err := beginFile(tx); err != nil {
			return err
		}
		meta = tx.Bucket(metaBucket)
	}
	for {
		format := string(meta.Get(formatKey))
		if format == fileFormat {
			return nil
		}
		step, known := migrations[format]
		if !known {
			return fmt.Errorf("the file has format %.20q, and this program reads and writes format %q and older ones: use the program that wrote it, or another file",
				format, fileFormat)
		}
		if err := step.run(tx); err != nil {
			return fmt.Errorf("the file cannot be brought from format %s to %s, and is as it was: %w", format, step.to, err)
		}
		if err := meta.Put(formatKey, []byte(step.to)); err != nil {
			return err
		}
	}
}

// beginFile gives an empty file format 1: policies' states.
func beginFile(tx *bolt.Tx) error {
	meta, err := tx.CreateBucket(metaBucket)
	if err != nil {
		return err
	}
	if _, err := tx.CreateBucket(policyBucket); err != nil {
		return err
	}
	return meta.Put(formatKey, []byte("1"))
}

// addObjects leads to format 2: declared objects and their history beside what there was.
func addObjects(tx *bolt.Tx) error {
	for _, name := range [][]byte{objectsBucket, historyBucket, subjectsBucket, commitsBucket} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	return writeHead(tx, &head{oldest: 1})
}
