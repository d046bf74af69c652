package state

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// A file has a step to each of its formats, a database to each but the first. The formats of each kind have distinct names, and every row
// changes something.
func TestFormatsFollowEachOther(t *testing.T) {
	for _, all := range [][]format{formats, syntheticFormats} {
		files, databases := map[string]bool{}, map[string]bool{}
		for _, f := range fileFormats(all) {
			if files[f.file] || (f.fileStep == nil && f.file != "") {
				t.Errorf("format %q of a file appears twice, or has no step", f.file)
			}
			files[f.file] = true
		}
		for i, f := range redisFormats(all) {
			if databases[f.redis] || (f.redisStep == nil) != (i == 0) || f.redis == "" || strings.Contains(f.redis, conversionMark) {
				t.Errorf("format %q of a database appears twice, lacks a step, or looks like a conversion in progress", f.redis)
			}
			databases[f.redis] = true
		}
		for i, f := range all {
			if f.adds == "" || i > 0 && f.file == all[i-1].file && f.redis == all[i-1].redis {
				t.Errorf("row %d adds %q and changes neither a file nor a database", i, f.adds)
			}
		}
	}
}

// A file goes through all steps after its format in one transaction, a new file through all steps.
func TestFileGoesThroughAllSteps(t *testing.T) {
	fail := errors.New("the step fails")
	later := append(formats[:len(formats):len(formats)],
		format{adds: "something in Redis", file: "2", redis: "2"},
		format{adds: "a bucket", file: "3", redis: "2", fileStep: func(tx *bolt.Tx) error {
			_, err := tx.CreateBucket([]byte("new"))
			return err
		}},
		format{adds: "a failure, where format 3 was left", file: "4", redis: "2", fileStep: func(tx *bolt.Tx) error {
			if tx.Bucket([]byte("new")) == nil {
				return errors.New("format 3 was left out")
			}
			if tx.Bucket(policyBucket).Bucket([]byte("cats")) != nil {
				return fail
			}
			return nil
		}})
	for _, c := range []struct {
		name, path string
		all        []format
		want       string
		err        error
	}{
		{"an old file", oldFile(t), later[:4], "3", nil},
		{"a new file", filepath.Join(t.TempDir(), "state.db"), later, "4", nil},
		{"the last of three steps fails", oldFile(t), later, "1", fail},
		{"a file that needs no step", oldFile(t), later[:1], "1", nil},
	} {
		db, err := bolt.Open(c.path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Update(func(tx *bolt.Tx) error { return convertFile(tx, c.all) }); !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.name, err, c.err)
		}
		_ = db.View(func(tx *bolt.Tx) error {
			if got := string(tx.Bucket(metaBucket).Get(formatKey)); got != c.want {
				t.Errorf("%s has format %q, want %q", c.name, got, c.want)
			}
			if got := tx.Bucket([]byte("new")) != nil; got != (c.want >= "3") {
				t.Errorf("%s has the bucket of format 3: %v", c.name, got)
			}
			return nil
		})
		db.Close()
	}
}
