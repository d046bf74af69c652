package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
)

// The layout that format 2 of a file adds. Numbers are little-endian in values, and big-endian in keys because their order matters. Each
// value ends with the CRC-32C of its key and of the value before the sum.
//
//	bucket    key                             value
//	xebec     "head"                          revision 8 bytes, number of objects 8, number of the oldest and the newest event 8 + 8,
//	                                          bytes of all values of events 8
//	objects   kind, "/", name                 revision 8, data
//	history   number of the event 8           revision 8, time in nanoseconds since 1970 8, length of the subject uvarint, subject, data
//	subjects  length of the subject uvarint,  only the sum
//	          subject, number of the event 8
//	commits   revision 8                      the commit's ID 16
//
// Events are numbered from 1, without gaps between the oldest and the newest. If there are none, the newest is the oldest less 1. The file
// does not record deleted objects: only the process that holds it writes to it, and that process remembers them ([tombstones]).
var (
	objectsBucket  = []byte("objects")
	historyBucket  = []byte("history")
	subjectsBucket = []byte("subjects")
	commitsBucket  = []byte("commits")
)

// head has the counters of all objects and events.
type head struct {
	revision       uint64
	objects        uint64
	oldest, newest uint64 // events
	historyBytes   uint64
}

func (h *head) events() int { return int(h.newest - h.oldest + 1) }

// seal appends the checksum to a value that begins at from.
func seal(value []byte, from int, key []byte) []byte {
	return binary.LittleEndian.AppendUint32(value, sumOf(key, value[from:]))
}

// unseal verifies a value's checksum and returns the value without it. The result is the file's memory.
func unseal(key, value []byte) ([]byte, error) {
	if len(value) < recordSum {
		return nil, fmt.Errorf("it has %d bytes, fewer than any record", len(value))
	}
	body := value[:len(value)-recordSum]
	if sumOf(key, body) != binary.LittleEndian.Uint32(value[len(body):]) {
		return nil, errors.New("its checksum is wrong")
	}
	return body, nil
}

func writeHead(tx *bolt.Tx, h *head) error {
	var value []byte
	for _, n := range []uint64{h.revision, h.objects, h.oldest, h.newest, h.historyBytes} {
		value = binary.LittleEndian.AppendUint64(value, n)
	}
	return tx.Bucket(metaBucket).Put(headKey, seal(value, 0, headKey))
}

// readHead reads the head. It also checks that all buckets exist, because a lost page can take some with it.
func readHead(tx *bolt.Tx) (head, error) {
	var h head
	for _, name := range [][]byte{metaBucket, policyBucket, objectsBucket, historyBucket, subjectsBucket, commitsBucket} {
		if tx.Bucket(name) == nil {
			return h, damagedError{fmt.Errorf("it has no bucket %q", name)}
		}
	}
	body, err := unseal(headKey, tx.Bucket(metaBucket).Get(headKey))
	if err == nil && len(body) != 5*8 {
		err = fmt.Errorf("it has %d bytes, expected %d", len(body), 5*8)
	}
	if err != nil {
		return h, damagedFor("the record of its revision", err)
	}
	for i, n := range []*uint64{&h.revision, &h.objects, &h.oldest, &h.newest, &h.historyBytes} {
		*n = binary.LittleEndian.Uint64(body[8*i:])
	}
	return h, nil
}

// fileObjectKey is the key of an object. Kinds have no byte lower than the slash, so keys are ordered by kind and name.
func fileObjectKey(k ObjectKey) []byte {
	return append(append(append(make([]byte, 0, len(k.Kind)+1+len(k.Name)), k.Kind...), '/'), k.Name...)
}

func parseObjectKey(key string) (ObjectKey, error) {
	kind, name, _ := strings.Cut(key, "/")
	k := ObjectKey{kind, name}
	return k, k.check()
}

func encodeObject(key []byte, revision uint64, data []byte) []byte {
	value := binary.LittleEndian.AppendUint64(make([]byte, 0, 8+len(data)+recordSum), revision)
	return seal(append(value, data...), 0, key)
}

// decodeObject reads an object. Its Data is the file's memory.
func decodeObject(key, value []byte) (Object, error) {
	body, err := unseal(key, value)
	if err != nil {
		return Object{}, err
	}
	if len(body) <= 8 || len(body) > 8+MaxObjectBytes {
		return Object{}, fmt.Errorf("it has %d bytes, expected %d to %d", len(body), 9, 8+MaxObjectBytes)
	}
	k, err := parseObjectKey(string(key))
	if err != nil {
		return Object{}, err
	}
	return Object{k, binary.LittleEndian.Uint64(body), body[8:]}, nil
}

func numberKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func encodeEvent(key []byte, revision uint64, e *Event) []byte {
	value := make([]byte, 0, 8+8+2+len(e.Subject)+len(e.Data)+recordSum)
	value = binary.LittleEndian.AppendUint64(value, revision)
	value = binary.LittleEndian.AppendUint64(value, uint64(e.At.UnixNano()))
	value = binary.AppendUvarint(value, uint64(len(e.Subject)))
	value = append(append(value, e.Subject...), e.Data...)
	return seal(value, 0, key)
}

// decodeEvent reads an event. It shares no memory with the file.
func decodeEvent(key, value []byte) (Event, error) {
	body, err := unseal(key, value)
	if err != nil {
		return Event{}, err
	}
	if len(body) < 8+8 {
		return Event{}, errors.New("it ends in its header")
	}
	length, rest, err := cutUvarint(body[16:], maxObjectNameBytes)
	if err != nil {
		return Event{}, fmt.Errorf("the length of its subject: %w", err)
	}
	if length == 0 || length > len(rest) || len(rest)-length > MaxObjectBytes {
		return Event{}, errors.New("it has no subject, is truncated or is too long")
	}
	return Event{
		Revision: binary.LittleEndian.Uint64(body),
		At:       time.Unix(0, int64(binary.LittleEndian.Uint64(body[8:]))).UTC(),
		Subject:  string(rest[:length]),
		Data:     append([]byte{}, rest[length:]...),
	}, nil
}

// subjectKey is the prefix of a subject's keys in the index, which no other subject's keys have. The event's number follows it.
func subjectKey(subject string) []byte {
	key := binary.AppendUvarint(make([]byte, 0, 2+len(subject)+8), uint64(len(subject)))
	return append(key, subject...)
}

// tombstones remember which objects were deleted since the file was opened.
type tombstones struct {
	// floor is the revision up to which deletions are not remembered.
	floor uint64
	at    map[ObjectKey]uint64 // the revision that deleted the object
}

func (t *tombstones) start(floor uint64) { t.floor, t.at = floor, map[ObjectKey]uint64{} }

// note records the changes of a commit. Beyond the limit all tombstones are dropped, and a reader that asks for older changes gets everything.
func (t *tombstones) note(revision uint64, put []Object, deleted []ObjectKey, limit int) {
	for i := range put {
		delete(t.at, put[i].ObjectKey)
	}
	for _, k := range deleted {
		t.at[k] = revision
	}
	if len(t.at) > limit {
		t.start(revision)
	}
}
