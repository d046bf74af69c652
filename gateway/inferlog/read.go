package inferlog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// EntryKind is what an [Entry] is.
type EntryKind uint8

// The kinds of entries.
const (
	KindQuery    EntryKind = entryQuery
	KindFeedback EntryKind = entryFeedback
)

// Entry is a query, in Record, or a feedback, in Feedback. It fits its schema: as many inputs as that has, outputs as many or none, and of
// the declared types and shapes; a label is JSON. All of it but the schema is the reader's again when the callback returns.
type Entry struct {
	Kind     EntryKind
	Schema   *Schema
	Record   Record
	Feedback Feedback
}

// Summary is what was read.
type Summary struct {
	Files, Frames     int
	Queries, Feedback int
	// RawBytes is what the frames hold, FileBytes what the files have.
	RawBytes, FileBytes int64
	// Damaged counts parts that could not be read; Notes say where and why, of the first 100 of them.
	Damaged int
	Notes   []string
}

const maxNotes = 100

func (s *Summary) note(format string, args ...any) {
	s.Damaged++
	if len(s.Notes) < maxNotes {
		s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
	}
}

// Read goes through files, and through the inference log's files of directories, in the order in which the paths are given, and those of a
// directory as they were written. It calls each for every entry; an error of each ends it and is returned as it is. What is damaged is
// skipped and noted; the frame that a gateway is just writing, or was when it was killed, counts as damaged. A path that cannot be read,
// or a file that is no inference log, is an error.
//
// The files and their sizes are those that there are when it begins: what is written meanwhile, and be it because of what each does, is
// not read.
//
// Memory is bounded by a few times [MaxRecordBytes], and the files' names.
func Read(paths []string, each func(*Entry) error) (Summary, error) {
	var all []part
	for _, path := range paths {
		parts, err := partsOf(path)
		if err != nil {
			return Summary{}, err
		}
		all = append(all, parts...)
	}
	r, err := newReader(each)
	if err != nil {
		return Summary{}, err
	}
	defer r.zstd.Close()
	for i := range all {
		if err := r.part(&all[i]); err != nil {
			return *r.sum, err
		}
	}
	return *r.sum, nil
}

// part is a file as far as it is read.
type part struct {
	path  string
	bytes int64
	// listed says that it was found in a directory: that it is gone, or has hardly begun, is no error.
	listed bool
}

func partsOf(path string) ([]part, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	switch {
	case info.Mode().IsRegular():
		return []part{{path: path, bytes: info.Size()}}, nil
	case !info.IsDir():
		return nil, fmt.Errorf("%s is neither a file nor a directory", path)
	}
	files, err := listFiles(path)
	if err != nil {
		return nil, err
	}
	parts := make([]part, len(files))
	for i, f := range files {
		parts[i] = part{filepath.Join(path, f.name), f.bytes, true}
	}
	return parts, nil
}

func newReader(each func(*Entry) error) (*reader, error) {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(maxBlockBytes), zstd.WithDecoderMaxWindow(2*maxBlockBytes))
	if err != nil {
		return nil, fmt.Errorf("cannot start the decompressor: %w", err)
	}
	return &reader{sum: &Summary{}, each: each, zstd: decoder, in: bufio.NewReaderSize(nil, frameHeaderBytes+maxStoredBytes)}, nil
}

// reader reads files one after the other.
type reader struct {
	sum  *Summary
	each func(*Entry) error
	zstd *zstd.Decoder
	in   *bufio.Reader
	raw  []byte
	dec  decoder

	name string
	at   int64 // of the next byte of the file
}

func (r *reader) part(p *part) error {
	err := r.file(p)
	switch {
	case !p.listed:
	case errors.Is(err, fs.ErrNotExist): // rotated away since
		r.sum.note("%s was removed while the directory was read", filepath.Base(p.path))
		return nil
	case errors.Is(err, errNoHeader): // a gateway was killed, or the disk was full, as it began
		r.sum.note("%v", err)
		return nil
	}
	return err
}

// errNoHeader is for files that end within their header.
var errNoHeader = errors.New("the file ends within its header")

func (r *reader) file(p *part) error {
	f, err := os.Open(p.path)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.stream(p.path, io.LimitReader(f, p.bytes))
}

// stream reads the text of one file.
func (r *reader) stream(path string, in io.Reader) error {
	r.name, r.at = path, 0
	r.in.Reset(in)
	r.sum.Files++
	defer func() { r.sum.FileBytes += r.at }()
	head, err := r.in.Peek(fileHeaderBytes)
	switch {
	case errors.Is(err, io.EOF) && bytes.HasPrefix(fileMagic[:], head[:min(len(head), len(fileMagic))]):
		return fmt.Errorf("%s: %w", path, errNoHeader)
	case err != nil && !errors.Is(err, io.EOF):
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := checkFileHeader(head); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := r.skip(fileHeaderBytes); err != nil {
		return err
	}
	for {
		more, err := r.frame()
		if err != nil || !more {
			return err
		}
	}
}

// skip takes n bytes that Peek has shown.
func (r *reader) skip(n int) error {
	n, err := r.in.Discard(n)
	r.at += int64(n)
	if err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	return nil
}

// frame reads one frame, or skips what is none. more is false at the end of the file.
func (r *reader) frame() (more bool, err error) {
	head, err := r.in.Peek(frameHeaderBytes)
	if errors.Is(err, io.EOF) {
		if len(head) > 0 {
			r.sum.note("%s: the last frame, at byte %d, is cut off", r.name, r.at)
		}
		return false, r.skip(len(head))
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", r.name, err)
	}
	h, ok := parseFrameHeader(head)
	if !ok {
		r.sum.note("%s: no frame at byte %d", r.name, r.at)
		return true, r.resync()
	}
	whole, err := r.in.Peek(frameHeaderBytes + h.storedBytes)
	if errors.Is(err, io.EOF) {
		r.sum.note("%s: the last frame, at byte %d, is cut off: %d of %d bytes", r.name, r.at, len(whole), frameHeaderBytes+h.storedBytes)
		return false, r.skip(len(whole))
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", r.name, err)
	}
	stored, at := whole[frameHeaderBytes:], r.at
	if crc32.Checksum(stored, castagnoli) != h.crc {
		r.sum.note("%s: the frame at byte %d is damaged: its checksum is wrong", r.name, at)
		if err := r.skip(1); err != nil { // what follows may be frames that the lost ones have made room for
			return false, err
		}
		return true, r.resync()
	}
	raw, err := r.expand(&h, stored)
	if err != nil || len(raw) != h.rawBytes {
		r.sum.note("%s: the frame at byte %d cannot be decompressed to its %d bytes", r.name, at, h.rawBytes)
		return true, r.skip(len(whole))
	}
	r.sum.Frames++
	r.sum.RawBytes += int64(len(raw))
	if err := r.entries(raw, at); err != nil {
		return false, err
	}
	return true, r.skip(len(whole))
}

// expand returns the entries of a frame, in stored itself or in the reader's memory.
func (r *reader) expand(h *frameHeader, stored []byte) (raw []byte, err error) {
	switch h.kind {
	case frameStored:
		return stored, nil
	case frameS2:
		if n, err := s2.DecodedLen(stored); err != nil || n != h.rawBytes { // which are bounded
			return nil, s2.ErrCorrupt
		}
		raw, err = s2.Decode(r.raw[:cap(r.raw)], stored)
	default:
		raw, err = r.zstd.DecodeAll(stored, r.raw[:0])
	}
	if cap(raw) > cap(r.raw) {
		r.raw = raw
	}
	return raw, err
}

// entries hands out what a frame holds.
func (r *reader) entries(raw []byte, at int64) error {
	r.dec.begin(raw)
	for {
		e, err := r.dec.next()
		if err != nil {
			r.sum.note("%s: the frame at byte %d: %v", r.name, at, err)
			if errors.Is(err, errEntry) {
				continue
			}
			return nil
		}
		if e == nil {
			return nil
		}
		if e.Kind == KindQuery {
			r.sum.Queries++
		} else {
			r.sum.Feedback++
		}
		if err := r.each(e); err != nil {
			return err
		}
	}
}

// resync goes on to the next place that begins like a frame, or to the end.
func (r *reader) resync() error {
	for {
		if head, err := r.in.Peek(frameHeaderBytes); err == nil {
			if _, ok := parseFrameHeader(head); ok {
				return nil
			}
		}
		seen, err := r.in.Peek(max(r.in.Buffered(), len(frameMagic)+1))
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		if len(seen) <= len(frameMagic) {
			return r.skip(len(seen))
		}
		skip := bytes.Index(seen[1:], frameMagic[:]) + 1 // the first byte is no beginning
		if skip == 0 {
			skip = len(seen) - len(frameMagic) + 1
		}
		if err := r.skip(skip); err != nil {
			return err
		}
	}
}
