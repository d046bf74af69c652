package cache

import "math/bits"

const (
	// bucketRefs and more fill a line of the processor's caches.
	bucketRefs  = 15
	bucketBytes = (bucketRefs + 1) * 4
	// bucketLoad is how many entries a bucket has on average if every entry is as small as possible. Then 1 bucket of 20
	// is full, and 1 entry of 100 is in a chain behind it. (If entries stayed in the chains, 1 of 27 would be: Erlang's loss formula.)
	bucketLoad = 10
)

// index finds entries by key and model, and the ghosts of evicted ones. It is a hash table of buckets, each of one line
// of memory. An entry lies where no cache of the processor has it, and reading it costs as much as all else in a
// look-up, so a look-up reads one bucket and only those of its entries whose tags match.
type index struct {
	buckets   []bucket
	blockMask uint32 // of a reference: the bits that are the block
}

// bucket refers to the entries whose hash it has. A reference is the number of an entry's first block and, in the bits
// that no block's number has, a part of the hash: the tag. In a shard of 16 MiB it has 15 bits, in one of 2 GiB 8. A
// reference with a tag and without a block is a ghost. A ghost gives way to an entry if no reference is 0.
type bucket struct {
	refs [bucketRefs]uint32
	more uint32 // entries for which no reference was left: the first block of one, further ones by head.sameBucket
}

// init makes an empty index of entries whose blocks have numbers up to capacity.
func (x *index) init(buckets, capacity int) {
	x.buckets, x.blockMask = make([]bucket, buckets), 1<<bits.Len32(uint32(capacity))-1
}

// hash mixes in the model's serial number, because the models of an ensemble are asked with the same key.
func hash(k Key, model uint32) uint64 { return k.Hi + uint64(model)*0x9e3779b97f4a7c15 }

// place returns the bucket of a hash, which its high bits decide, and the tag, which its low bits are.
func (x *index) place(hash uint64) (b *bucket, tag uint32) {
	i, _ := bits.Mul64(hash, uint64(len(x.buckets)))
	return &x.buckets[i], uint32(hash) &^ x.blockMask
}

// find returns the entry of this key and model, or nil.
func (s *shard) find(k Key, model uint32) (uint32, *head) {
	b, tag := s.place(hash(k, model))
	tags := ^s.blockMask
	for _, ref := range &b.refs {
		i := ref & s.blockMask
		if (ref^tag)&tags != 0 || i == 0 {
			continue
		}
		if e := s.at(i); e.key == k && e.model == model {
			return i, e
		}
	}
	for i := b.more; i != 0; {
		e := s.at(i)
		if e.key == k && e.model == model {
			return i, e
		}
		i = e.sameBucket
	}
	return 0, nil
}

// insert adds an entry that find does not find. It reports whether the entry had a ghost, whose place it then takes.
//
// No branch in the loop depends on the references: which of them are ghosts is random, and a mispredicted branch costs as much as the loop.
func (s *shard) insert(i uint32, e *head) (returns bool) {
	b, tag := s.place(hash(e.key, e.model))
	var own, empty, ghosts uint // sets of references
	for j, ref := range &b.refs {
		own |= isZero(ref^tag) << j
		empty |= isZero(ref) << j
		ghosts |= isZero(ref&s.blockMask) << j
	}
	switch {
	case own != 0 && tag != 0:
		b.refs[bits.TrailingZeros(own)] = tag | i
		return true
	case empty != 0:
		b.refs[bits.TrailingZeros(empty)] = tag | i
	case ghosts != 0: // an arbitrary one: their ages are not known
		if from := i % bucketRefs; ghosts>>from != 0 {
			ghosts = ghosts >> from << from
		}
		b.refs[bits.TrailingZeros(ghosts)] = tag | i
	default:
		e.sameBucket, b.more = b.more, i
	}
	return false
}

// isZero is 1 for 0, and 0 for everything else.
func isZero(x uint32) uint { return uint((uint64(x) - 1) >> 63) }

// forget removes an entry from the index. It may leave a ghost. There is none of an entry in a chain, or without a tag, or where an entry
// in the chain can have the place: a look-up should read no entry but the one that it finds, and a chain is read until its entries are gone.
func (s *shard) forget(i uint32, e *head, ghost bool) {
	b, tag := s.place(hash(e.key, e.model))
	for j := range b.refs {
		if b.refs[j] != tag|i {
			continue
		}
		switch {
		case b.more != 0:
			b.refs[j] = s.unchain(b)
		case ghost:
			b.refs[j] = tag
		default:
			b.refs[j] = 0
		}
		return
	}
	at := &b.more
	for *at != i {
		at = &s.at(*at).sameBucket
	}
	*at = e.sameBucket
}

// unchain takes the first entry out of the bucket's chain, and returns a reference to it.
func (s *shard) unchain(b *bucket) (ref uint32) {
	i := b.more
	e := s.at(i)
	b.more, e.sameBucket = e.sameBucket, 0
	_, tag := s.place(hash(e.key, e.model))
	return tag | i
}

// each calls f for every entry of bucket number n. f may forget it.
func (s *shard) each(n int, f func(i uint32, e *head)) {
	b := &s.buckets[n]
	for j := 0; j < bucketRefs; {
		ref := b.refs[j]
		if i := ref & s.blockMask; i != 0 {
			f(i, s.at(i))
		}
		if b.refs[j] == ref || b.refs[j]&s.blockMask == 0 { // else the place has an entry of the chain now
			j++
		}
	}
	for i := b.more; i != 0; {
		e := s.at(i)
		next := e.sameBucket
		f(i, e)
		i = next
	}
}
