package state

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
)

// A value is in its function's bucket, beside the records of states, under a key that no state has: a zero, which is the length of no
// policy's name, and the policy. So Forget deletes both, and programs that know no values do not see them:
//
//	offset  bytes
//	0       1   version, 1
//	1       8   revision, little-endian, as all numbers
//	9       8   fence of the last lease
//	17      16  the last writer
//	33      8   the sequence number of its save
//	41      …   data
//	-4      4   CRC-32C of the key and of everything before
type fileValue struct {
	revision, fence uint64
	writer          [16]byte
	seq             uint64
	data            []byte
}

const (
	fileValueVersion = 1
	fileValueHeader  = 1 + 8 + 8 + 16 + 8
)

func fileValueKey(k Key) []byte { return append([]byte{0}, k.Policy...) }

func (v *fileValue) encode(key []byte) []byte {
	b := make([]byte, 0, fileValueHeader+len(v.data)+recordSum)
	le := binary.LittleEndian
	b = le.AppendUint64(le.AppendUint64(append(b, fileValueVersion), v.revision), v.fence)
	b = append(le.AppendUint64(append(b, v.writer[:]...), v.seq), v.data...)
	return le.AppendUint32(b, sumOf(key, b))
}

// decodeFileValue decodes a value; nil is one that is not there. The result shares no memory with b, which is the file's.
func decodeFileValue(key, b []byte) (v fileValue, err error) {
	if b == nil {
		return v, nil
	}
	if len(b) < fileValueHeader+recordSum || len(b) > fileValueHeader+MaxValueBytes+recordSum {
		return v, fmt.Errorf("it has %d bytes: expected %d to %d", len(b), fileValueHeader+recordSum, fileValueHeader+MaxValueBytes+recordSum)
	}
	le := binary.LittleEndian
	body, sum := b[:len(b)-recordSum], le.Uint32(b[len(b)-recordSum:])
	if sumOf(key, body) != sum {
		return v, errors.New("its checksum is wrong")
	}
	if body[0] != fileValueVersion {
		return v, fmt.Errorf("its version is %d: expected %d", body[0], fileValueVersion)
	}
	v.revision, v.fence, v.seq = le.Uint64(body[1:]), le.Uint64(body[9:]), le.Uint64(body[33:])
	copy(v.writer[:], body[17:])
	v.data = append([]byte{}, body[fileValueHeader:]...)
	return v, nil
}

// changeValue reads a value, calls change, and writes the value if change returns true.
func (f *fileStore) changeValue(ctx context.Context, k Key, change func(v *fileValue) bool) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: given up by the caller: %w", f.path, err)
	}
	reason := ""
	err := f.guard(func() error {
		return f.updateHeld(func(tx *bolt.Tx) error {
			reason = ""
			function, err := tx.Bucket(policyBucket).CreateBucketIfNotExists([]byte(k.Function))
			if err != nil {
				return err
			}
			key := fileValueKey(k)
			v, err := decodeFileValue(key, function.Get(key))
			if err != nil {
				reason = damagedRecord(err)
				return nil
			}
			if !change(&v) {
				return nil
			}
			return function.Put(key, v.encode(key))
		})
	})
	if err == nil && reason != "" {
		return refuse(k, reason)
	}
	return err
}

// LeaseValue always gives the lease: no other process can write to the file.
func (f *fileStore) LeaseValue(ctx context.Context, key Key, lasts time.Duration) (fence uint64, err error) {
	if err := key.checkValue(); err != nil {
		return 0, refuse(key, err.Error())
	}
	f.leases.Lock()
	defer f.leases.Unlock()
	if lasts <= 0 {
		delete(f.leases.held, key)
		return 0, nil
	}
	if fence = f.leases.held[key]; fence != 0 {
		return fence, nil
	}
	if err := f.changeValue(ctx, key, func(v *fileValue) bool { v.fence++; fence = v.fence; return true }); err != nil {
		return 0, err
	}
	if f.leases.held == nil {
		f.leases.held = map[Key]uint64{}
	}
	f.leases.held[key] = fence
	return fence, nil
}

func (f *fileStore) LoadValue(ctx context.Context, k Key, since uint64) (Value, error) {
	if err := k.checkValue(); err != nil {
		return Value{}, refuse(k, err.Error())
	}
	if err := ctx.Err(); err != nil {
		return Value{}, fmt.Errorf("%s: given up by the caller: %w", f.path, err)
	}
	var v fileValue
	reason := ""
	err := f.guard(func() error {
		return f.db.View(func(tx *bolt.Tx) error {
			function := tx.Bucket(policyBucket).Bucket([]byte(k.Function))
			if function == nil {
				return nil
			}
			key := fileValueKey(k)
			var err error
			if v, err = decodeFileValue(key, function.Get(key)); err != nil {
				reason = damagedRecord(err)
			}
			return nil
		})
	})
	switch {
	case err != nil:
		return Value{}, err
	case reason != "":
		return Value{}, refuse(k, reason)
	case v.revision == 0 || v.revision == since:
		return Value{nil, v.revision}, nil
	}
	return Value{v.data, v.revision}, nil
}

func (f *fileStore) SaveValue(ctx context.Context, s *Save) (saved Saved, err error) {
	if err := s.check(); err != nil {
		return saved, refuse(s.Key, err.Error())
	}
	err = f.changeValue(ctx, s.Key, func(v *fileValue) bool {
		switch {
		case v.writer == f.writer && v.seq >= s.Seq && v.revision > 0:
			saved = Saved{Value: Value{v.data, v.revision}, Applied: true}
			return false
		case s.Fence != 0 && s.Fence != v.fence:
			saved = Saved{Value: Value{v.data, v.revision}, Fenced: true}
			return false
		case s.Base != v.revision:
			saved = Saved{Value: Value{v.data, v.revision}}
			return false
		}
		v.revision, v.writer, v.seq, v.data = v.revision+1, f.writer, s.Seq, s.Data
		saved = Saved{Value: Value{nil, v.revision}, Applied: true}
		return true
	})
	if err != nil {
		return Saved{}, err
	}
	return saved, nil
}
