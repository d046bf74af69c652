package cache

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"pgregory.net/rapid"
)

func TestDifferentQueriesHaveDifferentKeys(t *testing.T) {
	c := newCache(64<<10, 1, 1)
	seen := map[Key]string{}
	add := func(name, salt string, inputs ...api.Value) {
		k := c.Key([]byte(salt), inputs)
		if k != c.Model().Key([]byte(salt), inputs) {
			t.Errorf("%s: the model's key differs from the cache's", name)
		}
		if before, ok := seen[k]; ok {
			t.Errorf("%s has the key of %s", name, before)
		}
		seen[k] = name
	}
	v := func(s string, dims ...int64) api.Value { return api.Value{Data: []byte(s), Dims: dims} }
	add("nothing", "")
	add("an empty input", "", v(""))
	add("two empty inputs", "", v(""), v(""))
	add("ab", "", v("ab"))
	add("a, b", "", v("a"), v("b"))
	add("b, a", "", v("b"), v("a"))
	add("ab and an empty input", "", v("ab"), v(""))
	add("an empty input and ab", "", v(""), v("ab"))
	add("a as salt", "a", v("b"))
	add("ab as salt", "ab")
	add("2 dimensions", "", v("abcdef", 2, 3))
	add("the same dimensions in another order", "", v("abcdef", 3, 2))
	add("1 dimension", "", v("abcdef", 6))
	add("no dimensions", "", v("abcdef"))
	add("a dimension as data", "", v("\x06\x00\x00\x00\x00\x00\x00\x00abcdef"))
	for n := inlineBytes - 2; n < inlineBytes+3; n++ {
		long := bytes.Repeat([]byte{'x'}, n)
		add(fmt.Sprint(n, " bytes"), "", v(string(long)))
		long[n-1]++
		add(fmt.Sprint(n, " bytes with another end"), "", v(string(long)))
		long[n-1]--
		long[0]++
		add(fmt.Sprint(n, " bytes with another beginning"), "", v(string(long)))
	}
	var many []api.Value
	for i := range 64 { // much more than the digest's buffer
		many = append(many, v(fmt.Sprint(i), 1, 2, 3))
		add(fmt.Sprint(i+1, " inputs"), "", many...)
	}
	many[0] = v("other", 1, 2, 3)
	add("64 inputs with another first one", "", many...)
}

func TestCachesHaveDifferentKeys(t *testing.T) {
	long := []api.Value{{Data: make([]byte, 1000)}}
	for _, in := range [][]api.Value{nil, one("in"), long} {
		if a, b := New(0), New(0); a.Key(nil, in) == b.Key(nil, in) {
			t.Error("two caches have the same seed: a client that knows one could prepare collisions for all")
		}
	}
}

// TestBodies: what is written to a chain of blocks is read back, and compares equal to itself and to nothing else.
func TestBodies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p pool
		p.init(2000)
		first := values(t, "first", 3)
		second := values(t, "second", 3)
		// Chains with gaps in their block numbers, as in a cache that has been in use.
		a, _ := p.take(3)
		b, _ := p.take(5)
		p.take(2)
		p.release(a, 3)
		p.release(b, 5)
		n, more := encodedBytes(first), encodedBytes(second)
		id, last := p.take(blocksFor(n))
		if extra := blocksFor(n+more) - blocksFor(n); extra > 0 {
			next, _ := p.take(extra)
			p.at(last).next = next
		}
		e := p.at(id)
		c := p.begin(e)
		c.writeValues(first)
		c = p.resume(id, last, n)
		c.writeValues(second)

		c = p.begin(e)
		if !c.equalValues(first) {
			t.Fatal("not equal to what was written")
		}
		got := c.readValues([]api.Value{{Data: []byte("old"), Dims: []int64{9}}}, len(second))
		if !equalValues(got, second) {
			t.Fatalf("got %v, want %v", got, second)
		}
		for i := range first {
			for j := range first[i].Data {
				first[i].Data[j]++
				c = p.begin(e)
				if c.equalValues(first) {
					t.Fatalf("value %d with another byte %d compares equal", i, j)
				}
				first[i].Data[j]--
				if j > 8 {
					break
				}
			}
		}
	})
}
