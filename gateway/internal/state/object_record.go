package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
)

// What format 2 of a file adds to policies' records. Numbers are little-endian in values and big-endian in keys, whose order matters; each
// value ends with the CRC-32C of its key and of itself.
//
//	bucket    key                             value
//	xebec     "head"                          revision 8 bytes, number of objects 8, number of the oldest and the newest event 8 + 8,
//	                                          bytes of all values of events 8
//	objects   kind, "/", name                 revision 8, data
//	history   number of the event 8           revision 8, time in nanoseconds since 1970 8, length of the subject uvarint, subject, data
//	subjects  length of the subject uvarint,  nothing but the sum
//	          subject, number of the event 8
//	commits   revision 8                      the commit's ID 16
//
// Events are numbered from 1 on, and those that are kept have numbers without a gap: none is newer than the newest one, which is the oldest
// less 1 where there are none. Nothing tells of deleted objects: nobody writes to the file beside the process that holds it, and that one
// remembers them ([tombstones]) from its start.
var (
	objectsBucket  = []byte("objects")
	historyBucket  = []byte("history")
	subjectsBucket = []byte("subjects")
	commitsBucket  = []byte("commits")
)

// head is what is true of all objects.
type head struct {
	revision       uint64
	objects        uint64
	oldest, newest uint64 // events
	historyBytes   uint64
}

func (h *head) events() int { return int(h.newest - h.oldest + 1) }

// seal appends the check sum to a value that begins at from.
func seal(value []byte, from int, key []byte) []byte {
	return binary.LittleEndian.AppendUint32(value, sumOf(key, value[from:]))
}

// unseal returns a value without its check sum, after a look at it. It is the file's memory.
func unseal(key, value []byte) ([]byte, error) {
	if len(value) < recordSum {
		return nil, fmt.Errorf("it has %d bytes, fewer than any record", len(value))
	}
	body := value[:len(value)-recordSum]
	if sumOf(key, body) != binary.LittleEndian.Uint32(value[len(body):]) {
		return nil, errors.New("its check sum is wrong")
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

// readHead reads the head. That all buckets are there is looked up too, for a lost page takes some with it.
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

// fileObjectKey is where an object lies. Kinds have no byte that is lower than the slash, so that keys are ordered by kind and name.
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

// decodeObject reads an object. Its data is the file's memory.
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

// decodeEvent reads an event, which shares no memory with the file.
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
		return Event{}, errors.New("it has no subject, ends early or is too long")
	}
	return Event{
		Revision: binary.LittleEndian.Uint64(body),
		At:       time.Unix(0, int64(binary.LittleEndian.Uint64(body[8:]))).UTC(),
		Subject:  string(rest[:length]),
		Data:     append([]byte{}, rest[length:]...),
	}, nil
}

// subjectKey is where the index has an event; with the number left out, all of a subject begin with it, and no others.
func subjectKey(subject string) []byte {
	key := binary.AppendUvarint(make([]byte, 0, 2+len(subject)+8), uint64(len(subject)))
	return append(key, subject...)
}

// tombstones remember what was deleted since the file was opened.
type tombstones struct {
	// floor is the revision up to which they do not tell.
	floor uint64
	at    map[ObjectKey]uint64 // the revision that deleted the object
}

func (t *tombstones) start(floor uint64) { t.floor, t.at = floor, map[ObjectKey]uint64{} }

// note takes what a commit has changed. Beyond the limit all are forgotten, and whoever asks for older changes is told all.
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
