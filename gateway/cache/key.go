package cache

import (
	"encoding/binary"

	"github.com/xebec-serving/xebec/api"
	"github.com/zeebo/xxh3"
)

// Key is 128 bits of an input and its salt. Equal inputs have equal keys in one cache; in another cache, or after a restart, they
// have others, for each cache hashes with a seed of its own: nobody outside can prepare inputs that collide.
//
// A key only says where to look. What is found is compared byte by byte before it answers anything.
type Key struct{ Hi, Lo uint64 }

// Key hashes what distinguishes one query from another: the salt, and of each input, in the order of the signature, its
// dimensions and its data. It is the same for all models of the cache, so that a query of several models is hashed once.
//
// Every part is preceded by its length, so that no two different queries are hashed as the same bytes. Nothing is allocated, and
// large data is hashed where it lies.
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

// Key is [Cache.Key] of the model's cache.
func (m *Model) Key(salt []byte, inputs []api.Value) Key { return m.cache.Key(salt, inputs) }

// inlineBytes is up to which length data is copied and hashed together with what is around it. One call for longer data costs less
// than the copy.
const inlineBytes = 128

// digest hashes a sequence of numbers and byte strings. It collects them in a buffer; when that is full it goes on with the hash
// of what was in it (as R. Merkle and I. Damgård do it), and long strings stand in it as their own hash.
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
