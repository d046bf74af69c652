package learned

// chunkRows is the number of vectors in a chunk: small, so that a function with one context costs little, and large
// enough to keep the list of chunks short.
const chunkRows = 16

// floats is an arena of vectors of equal length. It grows in chunks that never move. The vectors hold no pointers, so
// the garbage collector sees one pointer for each chunk, however many contexts there are.
type floats struct {
	width  int
	chunks [][]float64
}

// at returns vector i, which must be below the size given to grow.
func (a *floats) at(i int32) []float64 {
	from := int(i%chunkRows) * a.width
	return a.chunks[i/chunkRows][from : from+a.width : from+a.width]
}

// grow makes room for n vectors.
func (a *floats) grow(n int) {
	for len(a.chunks)*chunkRows < n {
		a.chunks = append(a.chunks, make([]float64, chunkRows*a.width))
	}
}

// keyClasses are the block sizes for contexts' bytes. Most contexts are user IDs of about ten bytes; the longest have
// MaxContextBytes.
var keyClasses = [...]int{16, 32, 64, 128, MaxContextBytes}

// keys stores the bytes of contexts without a pointer for each.
type keys struct {
	classes [len(keyClasses)]struct {
		chunks [][]byte
		used   int32 // blocks ever allocated
		free   []int32
	}
}

func keyClass(n int) int {
	c := 0
	for keyClasses[c] < n {
		c++
	}
	return c
}

// put copies b, of at most MaxContextBytes, and returns its block.
func (k *keys) put(b []byte) int32 {
	size := keyClasses[keyClass(len(b))]
	c := &k.classes[keyClass(len(b))]
	block := c.used
	if n := len(c.free); n > 0 {
		block = c.free[n-1]
		c.free = c.free[:n-1]
	} else {
		if int(c.used) == len(c.chunks)*chunkRows {
			c.chunks = append(c.chunks, make([]byte, chunkRows*size))
		}
		c.used++
	}
	copy(k.at(block, len(b)), b)
	return block
}

// at returns the n bytes of a block that put filled with n bytes.
func (k *keys) at(block int32, n int) []byte {
	class := keyClass(n)
	from := int(block%chunkRows) * keyClasses[class]
	return k.classes[class].chunks[block/chunkRows][from : from+n]
}

// drop frees the block.
func (k *keys) drop(block int32, n int) {
	c := &k.classes[keyClass(n)]
	c.free = append(c.free, block)
}
