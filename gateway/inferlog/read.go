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

// EntryKind is the kind of an [Entry].
type EntryKind uint8

// Kinds of entries.
const (
	KindQuery    EntryKind = entryQuery
	KindFeedback EntryKind = entryFeedback
)

// Entry is a query, in Record, or feedback, in Feedback. It conforms to its schema: all inputs, and all outputs or
// none, with the declared types and shapes; a label is JSON. All of it except the schema belongs to the reader again
// when the callback returns.
type Entry struct {
	Kind     EntryKind
	Schema   *Schema
	Record   Record
	Feedback Feedback
}

// Summary describes what was read.
type Summary struct {
	Files, Frames     int
	Queries, Feedback int
	// RawBytes is the uncompressed size of the frames, FileBytes the size of the files.
	RawBytes, FileBytes int64
	// Damaged counts parts that could not be read. Notes describe the first 100 of them.
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

// Read reads files, and the inference log's files in directories. It reads the paths in the given order, and the files
// of a directory in the order in which they were written. It calls each for every entry; an error from each ends the
// reading and is returned unchanged. Damaged parts are skipped and noted. An incomplete last frame, which a gateway is
// writing or was writing when it was killed, counts as damaged. A path that cannot be read, or a file that is not an
// inference log, is an error.
//
// Read fixes the set of files and their sizes when it starts. It does not read what is written later, even if calls of
// each cause it.
//
// Memory is bounded by a few times [MaxRecordBytes], plus the files' names.
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

// part is a file with the size up to which it is read.
type part struct {
	path  string
	bytes int64
	// listed means that it was found in a directory. Then it is no error if it is gone or has no complete header.
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
	at   int64 // of the next byte in the file
}

func (r *reader) part(p *part) error {
	err := r.file(p)
	switch {
	case !p.listed:
	case errors.Is(err, fs.ErrNotExist): // removed by rotation since
		r.sum.note("%s was removed while the directory was read", filepath.Base(p.path))
		return nil
	case errors.Is(err, errNoHeader): // a gateway was killed, or the disk was full, when it started the file
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

// stream reads the contents of one file.
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

// skip discards n bytes that Peek has returned.
func (r *reader) skip(n int) error {
	n, err := r.in.Discard(n)
	r.at += int64(n)
	if err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	return nil
}

// frame reads one frame, or skips bytes that are not a frame. more is false at the end of the file.
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
		if err := r.skip(1); err != nil { // the rest may contain frames that follow a truncated one
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
		if n, err := s2.DecodedLen(stored); err != nil || n != h.rawBytes { // parseFrameHeader has bounded rawBytes
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

// entries calls each for the entries of a frame.
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

// resync skips to the next valid frame header, or to the end.
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
		skip := bytes.Index(seen[1:], frameMagic[:]) + 1 // not at the first byte, which was tried above
		if skip == 0 {
			skip = len(seen) - len(frameMagic) + 1
		}
		if err := r.skip(skip); err != nil {
			return err
		}
	}
}
