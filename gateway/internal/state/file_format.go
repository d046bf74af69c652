package state

import (
	"errors"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// The bucket with the format and the head of the file.
var (
	metaBucket = []byte("xebec")
	formatKey  = []byte("format")
	headKey    = []byte("head") // the encoding of a [head]
)

// convertFile initialises a new file, converts one of an older format, and refuses a newer format or another program's file. A new file
// goes through all steps too, so it cannot differ from a converted one. All of it is one transaction, so the file always has
// exactly one format.
func convertFile(tx *bolt.Tx, all []format) error {
	known := fileFormats(all)
	last := known[len(known)-1].file
	at, found := -1, ""
	if meta := tx.Bucket(metaBucket); meta != nil {
		found = string(meta.Get(formatKey))
		if at = slices.IndexFunc(known, func(f format) bool { return f.file == found }); at < 0 {
			return fmt.Errorf("the file has format %.20q, and this program reads and writes format %q and older ones: use the program that wrote it, or another file",
				found, last)
		}
	} else if name, _ := tx.Cursor().First(); name != nil {
		return errors.New("it is a bbolt file of another program: use another file")
	}
	for _, next := range known[at+1:] {
		if err := next.fileStep(tx); err != nil {
			return fmt.Errorf("the file cannot be converted from format %q to %q, and is unchanged: %w", found, next.file, err)
		}
		found = next.file
		if err := tx.Bucket(metaBucket).Put(formatKey, []byte(found)); err != nil {
			return err
		}
	}
	return nil
}

// beginFile makes the buckets of format 1 in an empty file.
func beginFile(tx *bolt.Tx) error {
	for _, name := range [][]byte{metaBucket, policyBucket} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	return nil
}

// addObjects makes the buckets of declared objects and their history, which format 2 adds.
func addObjects(tx *bolt.Tx) error {
	for _, name := range [][]byte{objectsBucket, historyBucket, subjectsBucket, commitsBucket} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	return writeHead(tx, &head{oldest: 1})
}
