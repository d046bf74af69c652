package cache

import (
	"encoding/binary"

	"github.com/xebec-serving/xebec/api"
	"github.com/zeebo/xxh3"
)

// Key is a 128-bit hash of a salt and inputs. Equal inputs have equal keys within one cache. Keys differ between caches
// and after a restart, because each cache hashes with its own seed: a client cannot prepare inputs that collide.
//
// A key only says where to look. An entry that is found is compared byte by byte before it is used.
type Key struct{ Hi, Lo uint64 }

// Key hashes what distinguishes one query from another: the salt, and the dimensions and data of each input, in the
// order of the signature. It is the same for all models of the cache, so a query of several models is hashed once.
//
// Every part is preceded by its length, so no two different queries are hashed as the same bytes. Key does not
// allocate, and hashes large data in place.
func (c *Cache) Key(salt []byte, inputs []api.Value) Key {
	d := digest{seed: c.seed}
	d.bytes(salt)
	d.number(uint64(len(inputs)))
	for i := range inputs {
		v := &inputs[i]
		d.number(uint64(len(v.Dims)))
		for _, dim := range v.Dims {
			d.number(uint64(dim))
		}
		d.bytes(v.Data)
	}
	k := d.sum()
	if c.testRekey != nil {
		k = c.testRekey(k)
	}
	return k
}

// Key returns [Cache.Key] of the model's cache.
func (m *Model) Key(salt []byte, inputs []api.Value) Key { return m.cache.Key(salt, inputs) }

// inlineBytes is the length up to which data is copied and hashed together with its neighbours. For longer data, a
// separate hash costs less than the copy.
const inlineBytes = 128

// digest hashes a sequence of numbers and byte strings. It collects them in a buffer. When the buffer is full, it
// continues with the hash of its contents (the Merkle–Damgård construction). A long string is represented by its own
// hash.
type digest struct {
	seed uint64
	n    int
	buf  [512]byte
}

func (d *digest) number(x uint64) {
	if d.n+8 > len(d.buf) {
		d.fold()
	}
	binary.LittleEndian.PutUint64(d.buf[d.n:], x)
	d.n += 8
}

func (d *digest) bytes(b []byte) {
	d.number(uint64(len(b)))
	if len(b) > inlineBytes {
		h := xxh3.Hash128Seed(b, d.seed)
		d.number(h.Hi)
		d.number(h.Lo)
		return
	}
	if d.n+len(b) > len(d.buf) {
		d.fold()
	}
	d.n += copy(d.buf[d.n:], b)
}

func (d *digest) sum() Key {
	h := xxh3.Hash128Seed(d.buf[:d.n], d.seed)
	return Key{h.Hi, h.Lo}
}

func (d *digest) fold() {
	k := d.sum()
	d.n = 0
	d.number(k.Hi)
	d.number(k.Lo)
}
