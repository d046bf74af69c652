package learned

// chunkRows is how many vectors an arena grows by: few enough that a function with one context costs little, and enough that
// the list of chunks stays short.
const chunkRows = 16

// floats is an arena of vectors of equal length. It grows in chunks, which never move, and its vectors hold no pointers: the
// garbage collector sees one pointer for each chunk, however many contexts there are.
type floats struct {
	width  int
	chunks [][]float64
}

// at is vector i, which must have been grown to.
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

// keyClasses are the sizes of blocks that contexts' bytes are kept in: most contexts are user ids of some ten bytes, and
// the longest are MaxContextBytes.
var keyClasses = [...]int{16, 32, 64, 128, MaxContextBytes}

// keys keeps the bytes of contexts, without a pointer for each.
type keys struct {
	classes [len(keyClasses)]struct {
		chunks [][]byte
		used   int32 // blocks ever handed out
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

// put copies b, of at most MaxContextBytes, and returns the block that holds it.
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

// at is the n bytes of a block that was put with n bytes.
func (k *keys) at(block int32, n int) []byte {
	class := keyClass(n)
	from := int(block%chunkRows) * keyClasses[class]
	return k.classes[class].chunks[block/chunkRows][from : from+n]
}

// drop gives the block back.
func (k *keys) drop(block int32, n int) {
	c := &k.classes[keyClass(n)]
	c.free = append(c.free, block)
}
