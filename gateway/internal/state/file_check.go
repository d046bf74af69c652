package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// bbolt trusts its pages. One wrong bit in a page number or in the number of pages that an entry takes can make it loop, use all memory or
// overwrite pages in use. checkPages verifies what bbolt will follow before bbolt does: each page in use is at its place, is used
// once, and has entries that end within it with keys in order; no page in use is listed as free. At the start this reads each page
// with entries once, and no long values.
//
// The layout (go.etcd.io/bbolt/internal/common; little-endian on every machine that this program supports; sizes in bytes):
//
//	page    number 8, flags 2, count 2, pages that follow 4; then count entries of 16
//	branch  offset from the entry's start to its key 4, length of the key 4, number of the page below 8
//	leaf    flags 4, offset 4, length of the key 4, length of the value behind it 4
//	bucket  (a value whose flags are 1) number of its root page 8, sequence 8; root 0: a page with leaves follows in the value
//	meta    (pages 0 and 1, behind the header) magic 4, version 4, page size 4, flags 4, bucket 16, number of the free list's page 8,
//	        pages in use 8, transaction 8, FNV-1a of all that 8
//	free    count numbers of 8; if count is 65535 the first number is the count
const (
	pageHeader, pageEntry         = 16, 16
	branchPage, leafPage          = 0x01, 0x02
	freePage                      = 0x10
	metaBytes, bucketBytes        = 64, 16
	metaMagic, metaVersion        = 0xED0CDAED, 2
	noFreePage             uint64 = 1<<64 - 1
	// Our files nest 2 buckets and have few levels of pages. Keys and inline buckets are no longer than bbolt's longest key.
	maxBucketDepth, maxPageDepth = 8, 64
	maxKeyBytes                  = 32768
)

type pageCheck struct {
	file *os.File
	size int    // of a page
	used []bool // by page number
	end  uint64 // number of the first page beyond those in use
}

func checkPages(file *os.File, pageSize int) error {
	c := &pageCheck{file: file, size: pageSize}
	root, free, err := c.meta()
	if err != nil {
		return err
	}
	c.used[0], c.used[1] = true, true
	if err := c.page(root, span{}, 0, 0); err != nil {
		return err
	}
	return c.free(free)
}

// meta checks both meta pages and returns what the newer one says. bbolt writes them in turns, and opens a file of which one page is invalid with the
// other: if that is the page of the last commit, an acknowledged change is gone silently. Which of the two was the newer cannot be told when
// one is damaged, so the file is refused in any case.
//
// A power cut while bbolt writes a meta page does not damage it: the 64 bytes lie within one sector, and disks write a sector completely or not at
// all. On a disk that tears sectors such a file is refused too, though only a change that was not acknowledged yet is missing.
//
// The pages are read while this process holds bbolt's lock on the file, because another process may write one until then. bbolt has only read by
// then.
func (c *pageCheck) meta() (root, free uint64, err error) {
	newest, found := uint64(0), false
	for i := range int64(2) {
		var meta [metaBytes]byte
		if _, err := c.file.ReadAt(meta[:], i*int64(c.size)+pageHeader); err != nil {
			return 0, 0, err
		}
		if wrong := metaDamage(&meta); wrong != "" {
			return 0, 0, damagedError{fmt.Errorf("meta page %d of 0 and 1, at byte %d, has %s; without it the last change could be missing unnoticed", i, i*int64(c.size), wrong)}
		}
		if transaction := binary.LittleEndian.Uint64(meta[48:]); !found || transaction > newest {
			newest, found = transaction, true
			root, free, c.end = binary.LittleEndian.Uint64(meta[16:]), binary.LittleEndian.Uint64(meta[32:]), binary.LittleEndian.Uint64(meta[40:])
		}
	}
	info, err := c.file.Stat()
	if err != nil {
		return 0, 0, err
	}
	if pages := uint64(info.Size()) / uint64(c.size); c.end < 2 || c.end > pages {
		return 0, 0, damagedError{fmt.Errorf("its meta page says that it has %d pages, and it has %d", c.end, pages)}
	}
	c.used = make([]bool, c.end)
	return root, free, nil
}

// metaDamage returns what is wrong with a meta page, or "".
func metaDamage(meta *[metaBytes]byte) string {
	magic, version := binary.LittleEndian.Uint32(meta[:]), binary.LittleEndian.Uint32(meta[4:])
	sum := fnv.New64a()
	sum.Write(meta[:56])
	stored := binary.LittleEndian.Uint64(meta[56:])
	switch {
	case magic != metaMagic:
		return fmt.Sprintf("the magic number %#x, expected %#x", magic, uint32(metaMagic))
	case version != metaVersion:
		return fmt.Sprintf("version %d, expected %d", version, metaVersion)
	case sum.Sum64() != stored:
		return fmt.Sprintf("the checksum %#x, expected %#x", stored, sum.Sum64())
	}
	return ""
}

// read marks a page and the ones that it continues on as used. It returns the first page and the length of all of them together.
func (c *pageCheck) read(number uint64) (page []byte, length uint64, err error) {
	if number < 2 || number >= c.end {
		return nil, 0, damagedError{fmt.Errorf("a reference leads to page %d, and pages 2 to %d are in use", number, c.end-1)}
	}
	page = make([]byte, c.size)
	if _, err := io.ReadFull(io.NewSectionReader(c.file, int64(number)*int64(c.size), int64(c.size)), page); err != nil {
		return nil, 0, err
	}
	if found := binary.LittleEndian.Uint64(page); found != number {
		return nil, 0, damagedError{fmt.Errorf("page %d says that it is page %d", number, found)}
	}
	more := uint64(binary.LittleEndian.Uint32(page[12:]))
	if more >= c.end-number {
		return nil, 0, damagedError{fmt.Errorf("page %d continues on %d pages, and %d follow", number, more, c.end-1-number)}
	}
	for i := number; i <= number+more; i++ {
		if c.used[i] {
			return nil, 0, damagedError{fmt.Errorf("page %d is in use twice", i)}
		}
		c.used[i] = true
	}
	return page, (more + 1) * uint64(c.size), nil
}

// A span bounds the keys of a page: from first on, and less than last unless that is nil.
type span struct{ first, last []byte }

// A location is a place with entries: a page, or an inline bucket in one.
type location struct {
	number uint64 // of the page, for messages
	at     int64  // offset in the file
	length uint64
	// How deep it is below its bucket's root, and in buckets. Both are bounded, though no page is visited twice anyway.
	pages, buckets int
}

func (p *location) invalidEntry(i int) error {
	return damagedError{fmt.Errorf("entry %d of page %d ends outside the page or is out of order", i, p.number)}
}

// page checks a page and everything below it.
func (c *pageCheck) page(number uint64, keys span, pages, buckets int) error {
	page, length, err := c.read(number)
	if err != nil {
		return err
	}
	p := location{number, int64(number) * int64(c.size), length, pages, buckets}
	// The entries of a page that continues on others may extend beyond its first page.
	count := uint64(binary.LittleEndian.Uint16(page[10:]))
	if need := pageHeader + count*pageEntry; need > uint64(len(page)) {
		if need > length {
			return damagedError{fmt.Errorf("page %d has %d entries, more than it can hold", number, count)}
		}
		rest := make([]byte, need-uint64(len(page)))
		if _, err := c.file.ReadAt(rest, p.at+int64(c.size)); err != nil {
			return err
		}
		page = append(page, rest...)
	}
	return c.entries(page, &p, keys)
}

// entries checks the entries of p. page has at least the table of entries.
func (c *pageCheck) entries(page []byte, p *location, keys span) error {
	flags, count := binary.LittleEndian.Uint16(page[8:]), int(binary.LittleEndian.Uint16(page[10:]))
	if flags != branchPage && flags != leafPage || flags == branchPage && count == 0 || p.pages > maxPageDepth || p.buckets > maxBucketDepth {
		return damagedError{fmt.Errorf("page %d is of kind %#x with %d entries, where a branch or leaves should be", p.number, flags, count)}
	}
	var below uint64 // the page below the previous entry; from is that entry's key
	var from []byte
	for i := range count {
		e, start := page[pageHeader+i*pageEntry:], uint64(pageHeader+i*pageEntry)
		word := func(at int) uint64 { return uint64(binary.LittleEndian.Uint32(e[at:])) }
		kind, offset, keyBytes, valueBytes := uint64(0), word(0), word(4), uint64(0)
		if flags == leafPage {
			kind, offset, keyBytes, valueBytes = word(0), word(4), word(8), word(12)
		}
		if kind > 1 || offset < uint64((count-i)*pageEntry) || start+offset+keyBytes+valueBytes > p.length || keyBytes > maxKeyBytes {
			return p.invalidEntry(i)
		}
		key, err := c.bytes(page, p, start+offset, keyBytes)
		if err != nil {
			return err
		}
		if i == 0 && bytes.Compare(key, keys.first) < 0 || i > 0 && bytes.Compare(key, from) <= 0 || keys.last != nil && bytes.Compare(key, keys.last) >= 0 {
			return p.invalidEntry(i)
		}
		switch {
		case flags == branchPage && i > 0:
			err = c.page(below, span{from, key}, p.pages+1, p.buckets)
		case kind == 1:
			err = c.bucket(p, start+offset+keyBytes, valueBytes)
		}
		if err != nil {
			return err
		}
		from = key
		if flags == branchPage {
			below = binary.LittleEndian.Uint64(e[8:])
		}
	}
	if flags == branchPage {
		return c.page(below, span{from, keys.last}, p.pages+1, p.buckets)
	}
	return nil
}

// bytes returns a part of a page, from the file if it lies beyond what was read.
func (c *pageCheck) bytes(page []byte, p *location, from, length uint64) ([]byte, error) {
	if from+length <= uint64(len(page)) {
		return page[from : from+length], nil
	}
	b := make([]byte, length)
	_, err := c.file.ReadAt(b, p.at+int64(from))
	return b, err
}

// bucket checks a bucket that is a value in a page.
func (c *pageCheck) bucket(p *location, from, length uint64) error {
	if length < bucketBytes || length > maxKeyBytes {
		return damagedError{fmt.Errorf("a bucket in page %d has %d bytes", p.number, length)}
	}
	value, err := c.bytes(nil, p, from, length)
	if err != nil {
		return err
	}
	if root := binary.LittleEndian.Uint64(value); root != 0 {
		return c.page(root, span{}, 0, p.buckets+1)
	}
	inline := value[bucketBytes:]
	if len(inline) < pageHeader || binary.LittleEndian.Uint16(inline[8:]) != leafPage ||
		pageHeader+int(binary.LittleEndian.Uint16(inline[10:]))*pageEntry > len(inline) {
		return damagedError{fmt.Errorf("a bucket in page %d is invalid", p.number)}
	}
	return c.entries(inline, &location{p.number, p.at + int64(from) + bucketBytes, uint64(len(inline)), 0, p.buckets + 1}, span{})
}

// free checks the list of free pages. It must run after all other pages were checked.
func (c *pageCheck) free(number uint64) error {
	if number == noFreePage {
		return nil
	}
	page, length, err := c.read(number)
	if err != nil {
		return err
	}
	if flags := binary.LittleEndian.Uint16(page[8:]); flags != freePage {
		return damagedError{fmt.Errorf("page %d is of kind %#x, where the list of free pages should be", number, flags)}
	}
	count, first := uint64(binary.LittleEndian.Uint16(page[10:])), uint64(pageHeader)
	if count == 0xffff {
		count, first = binary.LittleEndian.Uint64(page[pageHeader:]), pageHeader+8
	}
	if count > (length-first)/8 {
		return damagedError{fmt.Errorf("the list of free pages has %d entries, more than its pages hold", count)}
	}
	list := make([]byte, 8*count)
	if _, err := c.file.ReadAt(list, int64(number)*int64(c.size)+int64(first)); err != nil {
		return err
	}
	for i := range count {
		n := binary.LittleEndian.Uint64(list[8*i:])
		if n < 2 || n >= c.end || c.used[n] {
			return damagedError{fmt.Errorf("page %d is listed as free, but is in use or does not exist", n)}
		}
		c.used[n] = true
	}
	return nil
}
